"""The storage that is a real Fluss cluster, which the tiering server reaches by Fluss's native protocol."""
