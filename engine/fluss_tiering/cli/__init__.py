"""The `fluss-tiering` command: a file for each of its commands."""
