"""Lake tables: the protocol, and the lake formats that implement it, each in its own folder.

This package is private: other programs import from `fluss_tiering`.
"""
