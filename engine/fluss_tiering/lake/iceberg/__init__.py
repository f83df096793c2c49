"""Iceberg tables, used through the JVM of a Spark session. Their files are written with pyarrow."""
