"""Iceberg tables through the JVM of a Spark session; their files through pyarrow."""
