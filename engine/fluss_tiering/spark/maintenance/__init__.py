"""Maintenance of lake tables through Iceberg's own procedures: compaction, expiry of snapshots."""
