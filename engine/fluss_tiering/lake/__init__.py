"""Lake tables: the protocol and, in folders of their own, the formats that implement it.

This package is private: other programs import from `fluss_tiering`.
"""
