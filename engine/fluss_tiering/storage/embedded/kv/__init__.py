"""The rows of a primary-key table, stored by key: RocksDB, its snapshots and scans, and the changelog."""
