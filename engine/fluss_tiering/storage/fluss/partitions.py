"""The partitions that the rows of a write belong to. Missing ones are created."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Final

from fluss_tiering.formats.partitioning import PartitionValues
from fluss_tiering.model.table import TableInfo
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
