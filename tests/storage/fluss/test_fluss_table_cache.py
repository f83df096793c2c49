"""What the storage knows of a table that others alter: never older than what a caller has seen of its rows."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from fluss_tables import COLUMNS, add_column, descriptor, new_table
from refusals import refused

from fluss_support import FlussCluster
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.table import Column, DataType, WriteKind
from fluss_tiering.storage.fluss.access import ClusterLink
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from fluss_tiering.storage.fluss.storage import FlussStorage

WIDER = arrow_schema((*COLUMNS, Column("added", DataType.parse("INT"))))


@pytest.fixture
def storage(fluss_cluster: FlussCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[FlussStorage]:
    """Return a storage for which no time passes, so that a table that it has seen stays fresh."""
    link = ClusterLink(fluss_cluster.bootstrap, None, FlussClient(fluss_cluster.bootstrap))
    opened = FlussStorage.open(link, within=20)
    monkeypatch.setattr(opened.listed, "_monotonic", lambda: 0.0)
    yield opened
    opened.close()


def test_after_its_buckets_a_table_has_the_columns_of_all_their_rows(storage: FlussStorage, fluss: FlussClient) -> None:
    made = new_table(fluss, descriptor())
    path = made.path
    assert storage.table(path).schema_id == made.schema_id
    altered = add_column(fluss, made, "added", "INT")
    assert storage.table(path).schema_id == made.schema_id, "it is fresh"

    storage.buckets(path)

    assert storage.table(path) == altered


@pytest.mark.parametrize("primary_key", [False, True])
def test_rows_with_a_column_that_was_added_just_now_are_written(
    storage: FlussStorage, fluss: FlussClient, primary_key: bool
) -> None:
    made = new_table(fluss, descriptor(primary_key=primary_key))
    path, kind = made.path, WriteKind.UPSERT if primary_key else WriteKind.APPEND
    assert storage.table(path).schema_id == made.schema_id
    add_column(fluss, made, "added", "INT")
    rows = pa.Table.from_pylist([{"id": 1, "name": "one", "added": 11}], schema=WIDER)

    assert list(storage.write(path, kind, rows).values()) == [1]

    with refused(ErrorCode.INVALID_ROWS, "no column 'other'"):
        storage.write(path, kind, rows.rename_columns(["id", "name", "other"]))
