"""The metrics of files, by which Iceberg's readers skip them: modes, bounds, and what is collected while writing."""
