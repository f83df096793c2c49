"""Writing rows to a cluster, as Fluss's own clients do."""
