"""The Python data source by which Spark reads Fluss tables and the system tables: `format("fluss")`."""
