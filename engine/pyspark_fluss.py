"""By this module Spark finds the data source "fluss": it looks for `DefaultSource` in top-level modules `pyspark_…`."""

from fluss_tiering.spark.source.data_source import FlussDataSource as DefaultSource

__all__ = ["DefaultSource"]
