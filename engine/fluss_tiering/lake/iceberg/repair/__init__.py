"""Finds files of a lake table whose metadata or physical types are wrong, and mends them without changing a row."""
