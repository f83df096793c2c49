"""Fluss's compacted rows and their fields, to and from Arrow columns."""
