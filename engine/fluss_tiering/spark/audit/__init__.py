"""Audits of a lake table: whether it holds what its source holds, and what lies beside it."""
