"""The server with its own embedded storage."""
