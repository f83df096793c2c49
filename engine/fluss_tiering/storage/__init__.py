"""Storages of Fluss tables: the protocol and, in folders of their own, its implementations.

This package is private: other programs import from `fluss_tiering`.
"""
