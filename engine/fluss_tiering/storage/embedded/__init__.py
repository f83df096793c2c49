"""The embedded storage: tables in a folder of the server's machine, in Fluss's formats, without another service."""
