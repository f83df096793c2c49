"""The partitions of a cluster's tables, and how many buckets a table or a partition has.

Since Fluss 1.0.0 the number of buckets of a table can be changed; `bucket_count_epoch` counts how often. Each partition
keeps its own number, and that of the table is the one of new partitions. The rules are those of Fluss's Java client
1.0.0 (`Cluster.getBucketCountOrFallback`, `ClientUtils.fallbackBucketCountOrFail`, `MetadataUtils`).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Final

from fluss_tiering.formats.grouping import PartitionValues
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo
from fluss_tiering.storage.fluss.rpc.calls.cluster import metadata
from fluss_tiering.storage.fluss.rpc.calls.tables import Partition, create_partition, list_partitions
from fluss_tiering.storage.fluss.rpc.client import FlussClient

_MAX_TABLES: Final = 1000


class KnownPartitions:
    """A cache of partitions by their values. It allows concurrent calls."""

    def __init__(self, client: FlussClient) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._known: dict[int, dict[PartitionValues, Partition]] = {}

    def of(self, table: TableInfo, wanted: Sequence[PartitionValues]) -> Mapping[PartitionValues, Partition]:
        """Return partitions. Missing partitions are created first.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is no such table; INVALID_REQUEST if Fluss does not allow one of
                the values in a partition's name.
        """
        known = self._known.get(table.table_id, {})
        if not known.keys() >= set(wanted):
            known = self._ask(table)
            missing = set(wanted) - known.keys()
            for values in sorted(missing):
                spec = dict(zip(table.descriptor.partition_keys, values, strict=True))
                self._client.call(create_partition(table.path, spec, ignore_if_exists=True))
            if missing:
                known = self._ask(table)
        return known

    def forget(self, table_id: int) -> None:
        """Forget the partitions of a table, since some may have been dropped."""
        with self._lock:
            self._known.pop(table_id, None)

    def _ask(self, table: TableInfo) -> dict[PartitionValues, Partition]:
        partitions = self._client.call(list_partitions(table.path))
        known = {_values(table, each): each for each in partitions}
        with self._lock:
            if len(self._known) >= _MAX_TABLES:
                self._known.clear()
            self._known[table.table_id] = known
        return known


def _values(table: TableInfo, partition: Partition) -> PartitionValues:
    return tuple(partition.values[key] for key in table.descriptor.partition_keys)


def bucket_count(client: FlussClient, table: TableInfo, partition: Partition | None) -> int:
    """Return the number of buckets of a partition, or of a table that is not partitioned (None).

    The table's own number is taken only if it was never changed.

    Raises:
        FlussTieringError: INVALID_TABLE if it was changed and the cluster does not say what the number is here.
    """
    if partition is not None and partition.bucket_count is not None:
        return partition.bucket_count
    if table.bucket_count_epoch == 0:
        return table.descriptor.num_buckets
    # A table without partitions has as many buckets as it has leaders or had some.
    known = 0 if partition is not None else len(client.call(metadata([table.path])).leaders)
    if known == 0:
        what = "the table" if partition is None else f"the partition {partition.name!r}"
        raise FlussTieringError(
            ErrorCode.INVALID_TABLE,
            f"the number of buckets of table {table.path} was changed (bucket count epoch {table.bucket_count_epoch}), "
            f"and the cluster does not say how many buckets {what} has: expected a number, as servers of Fluss 1.0.0 "
            f"tell it; that of the table ({table.descriptor.num_buckets}) may be another one and is not taken; "
            "upgrade all servers of the cluster",
        )
    return known
