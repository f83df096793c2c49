"""Fluss's native protocol: frames, calls, connections, and the choice of the server for each call."""
