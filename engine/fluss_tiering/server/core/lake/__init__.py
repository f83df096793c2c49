"""Lake snapshots, which tell how much of each table's log is in the lake, and the catalogs of the lake."""
