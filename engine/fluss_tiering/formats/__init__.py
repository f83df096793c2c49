"""Fluss's bytes to and from Arrow, columnar and pure: no I/O and no state."""
