"""The tiering server: managers without I/O, their store, and the gRPC services over them.

This package is private: other programs import from `fluss_tiering`.
"""
