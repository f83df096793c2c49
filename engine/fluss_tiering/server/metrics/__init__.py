"""Prometheus metrics. Those that Fluss has too bear the names of Fluss's reporter, the others `fluss_tiering_…`."""
