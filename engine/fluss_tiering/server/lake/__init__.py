"""Lake snapshots: which part of each table's log is in the lake."""
