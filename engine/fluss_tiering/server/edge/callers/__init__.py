"""Who calls the server, and what the caller may do."""
