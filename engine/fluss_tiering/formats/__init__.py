"""Conversions between Fluss's bytes and Arrow. They work on whole columns, do no I/O and keep no state.

This package is private: other programs import from `fluss_tiering`.
"""
