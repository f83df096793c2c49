"""Makers of tables, histories and predicates: the same for the same seed."""
