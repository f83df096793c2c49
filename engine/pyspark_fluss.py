"""Spark finds the data source "fluss" here: it looks for `DefaultSource` in top-level modules named `pyspark_…`."""

from fluss_tiering.spark.source.data_source import FlussDataSource as DefaultSource

__all__ = ["DefaultSource"]
