"""Maintenance of lake tables with Iceberg's own procedures: compaction, and expiry of snapshots."""
