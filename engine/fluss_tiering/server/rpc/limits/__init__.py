"""Limits of calls: sizes, numbers, answers that nobody takes, and connections."""
