"""Fluss's bytes to and from Arrow, columnar and pure: no I/O and no state.

This package is private: other programs import from `fluss_tiering`.
"""
