"""The metadata of an Iceberg table: its description, the commits in its history, and where its files are placed."""
