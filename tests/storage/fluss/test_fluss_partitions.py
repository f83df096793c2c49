"""Partitions of a real Fluss cluster that others create and drop."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from fluss_scanning import open_storage
from fluss_tables import COLUMNS, new_path
from refusals import refused

from fluss_support import FlussCluster
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.table import Column, DataType, TableDescriptor, WriteKind
from fluss_tiering.storage.fluss.rpc.calls.tables import create_partition, drop_partition
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from fluss_tiering.storage.fluss.storage import FlussStorage


@pytest.fixture
def storage(fluss_cluster: FlussCluster) -> Iterator[FlussStorage]:
    """Return a storage that knows no partition yet, instead of the one that the tests of a module share."""
    opened = open_storage(fluss_cluster)
    yield opened
    opened.close()


def test_a_partition_that_was_dropped_before_it_was_ever_written_here(
    storage: FlussStorage, fluss: FlussClient
) -> None:
    columns = (*COLUMNS, Column("day", DataType.parse("STRING NOT NULL")))
    table = storage.create_table(new_path(), TableDescriptor(columns, partition_keys=("day",), num_buckets=2))

    def write(day: str) -> int:
        rows = pa.table([[1, 2], ["a", "b"], [day] * 2], schema=arrow_schema(columns))
        return sum(storage.write(table.path, WriteKind.APPEND, rows).values())

    fluss.call(create_partition(table.path, {"day": "monday"}))
    # The cache learns of both here.
    assert write("friday") == 2
    fluss.call(drop_partition(table.path, {"day": "monday"}))
    # The first write to the dropped partition fails, and the next one creates it again.
    with refused(ErrorCode.PARTITION_NOT_EXIST, "PARTITION_NOT_EXISTS"):
        for _ in range(1000):
            write("monday")
    assert write("monday") == 2
    assert {info.partition_values for info in storage.buckets(table.path)} == {("friday",), ("monday",)}
