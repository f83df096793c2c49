"""Values that every layer shares. They are immutable and do no I/O.

Import public names from the modules of this package.
"""
