"""The metadata of an Iceberg table beside its commits: where files are placed, and which partitions have rows."""
