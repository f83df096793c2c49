"""Values that every layer shares: frozen, without I/O.

The public names are those of the modules below; import them from there.
"""
