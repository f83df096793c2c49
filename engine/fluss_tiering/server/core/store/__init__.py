"""The store: the server's durable state in SQL. It holds leases, attempts, tiering statuses, rounds, lake snapshots."""
