"""The server's durable state in SQL: leases and their attempts, tiering statuses, rounds, lake snapshots."""
