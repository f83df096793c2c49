"""The Python data source `format("fluss")`, with which Spark reads Fluss tables and system tables."""
