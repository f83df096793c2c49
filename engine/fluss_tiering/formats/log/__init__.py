"""Fluss's log batches: their layout, and how to write, decode and find them."""
