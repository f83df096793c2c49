"""Fluss's log batches: layout, writing, decoding, and finding them in bytes."""
