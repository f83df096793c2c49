"""The values that every layer shares. They are immutable and do no I/O.

The values that other programs handle are public in `fluss_tiering`. The modules of this package are private.
"""
