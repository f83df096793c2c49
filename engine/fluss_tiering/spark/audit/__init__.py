"""Audits of a lake table: whether it holds the same rows as its source, and which orphan files it has."""
