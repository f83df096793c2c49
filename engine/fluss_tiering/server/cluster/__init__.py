"""The server as the tiering service of a Fluss cluster: its claims, its leases, the lake snapshots that it knows."""
