"""Storages of Fluss tables: the protocol and, in folders of their own, its implementations."""
