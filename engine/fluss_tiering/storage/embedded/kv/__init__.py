"""The rows of a primary-key table by key: RocksDB, its snapshots, scans and changelog."""
