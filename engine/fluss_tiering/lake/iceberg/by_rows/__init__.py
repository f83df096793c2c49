"""Writes pieces of log tables whose lake table is partitioned by transforms of the rows."""

from fluss_tiering.lake.iceberg.by_rows.transforms import computable
from fluss_tiering.lake.iceberg.by_rows.writer import PartitionedFileWriter

__all__ = ["PartitionedFileWriter", "computable"]
