"""Generated code only.

This package is private: other programs import from `fluss_tiering`.
"""
