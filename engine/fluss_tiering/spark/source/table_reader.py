"""Reads a Fluss table for Spark. The driver plans the scan, and tasks read the partitions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import datasource as ds
from pyspark.sql.types import StructType

from fluss_tiering.client import TieringClient
from fluss_tiering.client.security import ClientSecurity
from fluss_tiering.model.table import BucketInfo, TableBucket, TablePath
from fluss_tiering.spark.source.options import SourceOptions, plain_errors
from fluss_tiering.spark.source.schema import chosen_columns, spark_rows
from fluss_tiering.storage.open import cluster_access, open_bucket_scans, open_split_reader


class LogPartition(ds.InputPartition):
    """A range [start_offset, end_offset) of a bucket's log when the scan was planned. It may be empty."""

    def __init__(self, bucket: TableBucket, start_offset: int, end_offset: int) -> None:
        super().__init__((bucket, start_offset, end_offset))
        self.bucket = bucket
        self.start_offset = start_offset
        self.end_offset = end_offset


class KvPartition(ds.InputPartition):
    """A bucket of a primary-key table, with the rows that it has when the task opens its scan."""

    def __init__(self, bucket: TableBucket) -> None:
        super().__init__(bucket)
        self.bucket = bucket


def log_partitions(buckets: Sequence[BucketInfo], max_bytes: int) -> list[ds.InputPartition]:
    """Return one or more partitions for each bucket, each with about `max_bytes` of the log at most."""
    return [part for info in buckets for part in _log_parts(info, max_bytes)]


def _log_parts(info: BucketInfo, max_bytes: int) -> Iterator[LogPartition]:
    start, length = info.log_start_offset, info.log_end_offset - info.log_start_offset
    count = max(1, min(length, math.ceil(info.log_size_bytes / max_bytes)))
    for number in range(count):
        yield LogPartition(info.bucket, start + length * number // count, start + length * (number + 1) // count)


class TableReader(ds.DataSourceReader):
    """Reads a table as it is now, with a partition for each bucket.

    Of a log table, the scan reads the rows that were acknowledged when it was planned; every attempt of a task reads
    the same rows. A bucket of a primary-key table is read as it is when the task opens its scan. This view is
    consistent, but a task that runs again sees a later one. In both cases buckets are not read at one common moment:
    of two rows that were written to two buckets one after the other, the scan may see only one.

    Spark asks a Python source for all columns. With the project's classes for the JVM, a query asks only for those that
    it needs, and Spark filters the rows.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        with plain_errors(), TieringClient(options.server, security=options.security) as client:
            (table,) = client.get_tables([TablePath.parse(options.table)])
            self._columns = chosen_columns(options.table, table.descriptor.columns, schema)
            self._storage = client.describe_storage()
            self._access = cluster_access(self._storage)
            # A secret, as the access is: Spark sends both with the tasks, and shows neither.
            self._security = client.security_of_executors(table.path)
        # Executors do not need the lake's credentials.
        self._table = replace(table, lake_catalog_properties={})

    def __getstate__(self) -> dict[str, object]:
        """Return what executors get: credentials of their own, and none of the driver's."""
        return {**self.__dict__, "_options": replace(self._options, security=ClientSecurity())}

    def partitions(self) -> Sequence[ds.InputPartition]:
        """Return a partition for each bucket, and several for a long log."""
        with plain_errors(), TieringClient(self._options.server, security=self._options.security) as client:
            buckets = client.list_buckets([self._table.path])[self._table.path]
        if self._table.has_primary_key:
            return [KvPartition(info.bucket) for info in buckets]
        return log_partitions(buckets, self._options.max_partition_bytes)

    def read(self, partition: ds.InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition; no rows for None, which means no partition."""
        with plain_errors():
            for rows in self._rows(partition):
                if rows.num_rows:
                    yield spark_rows(rows, self._columns)

    def _rows(self, partition: ds.InputPartition | None) -> Iterator[pa.RecordBatch]:
        names = [column.name for column in self._columns]
        match partition:
            case LogPartition(bucket=bucket, start_offset=start, end_offset=end):
                reader = open_split_reader(self._storage, self._options.server, self._access, self._security)
                for batch in reader.read_log(self._table, bucket, start, end, names):
                    yield batch.records
            case KvPartition(bucket=bucket):
                yield from self._current_rows(bucket, names)

    def _current_rows(self, bucket: TableBucket, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows that a bucket has now, from its leader or, if that cannot give them, from the server."""
        scans = open_bucket_scans(self._storage, self._access)
        rows = None if scans is None else scans.open(self._table, bucket, columns)
        if rows is not None:
            yield from rows
            return
        with (
            TieringClient(self._options.server, security=self._security.with_own_certificate()) as client,
            client.scan(self._table, buckets=[bucket], columns=columns) as scan,
        ):
            yield from scan
