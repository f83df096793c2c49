"""A real Fluss cluster behind the tiering server: its native protocol and the calls that tiering needs of it."""
