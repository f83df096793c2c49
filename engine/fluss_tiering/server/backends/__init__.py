"""The two storages behind a server: the embedded one, and a Fluss cluster."""
