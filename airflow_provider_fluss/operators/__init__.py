"""Operators: acquire and release KV snapshot leases, submit the tiering application."""
