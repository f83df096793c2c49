"""The `fluss-tiering` command: a file for each of its commands.

This package is private: people and programs run the command.
"""
