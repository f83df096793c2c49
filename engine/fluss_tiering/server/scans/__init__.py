"""Scans of primary-key tables: the sessions of clients over the storage's scans (K1-K17)."""
