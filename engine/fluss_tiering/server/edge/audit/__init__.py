"""The audit log: who made which call about which table, from where, and how it ended."""
