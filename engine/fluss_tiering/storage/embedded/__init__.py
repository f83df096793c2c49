"""The embedded storage: tables in a folder of the server's machine, in Fluss's own formats; nothing else to run."""
