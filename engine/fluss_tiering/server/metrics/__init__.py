"""Prometheus metrics, under the names that Fluss's own reporter gives them, else under `fluss_tiering_`."""
