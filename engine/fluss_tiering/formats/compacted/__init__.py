"""Conversions between Fluss's compacted rows and Arrow columns."""
