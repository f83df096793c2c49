"""The storages of Fluss tables: the protocol that all of them follow, and a folder for each of them.

This package is private: other programs import from `fluss_tiering`.
"""
