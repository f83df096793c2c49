"""The commands that run where the server runs: they start it, and change its data folder and its file of tokens."""
