"""Logs of tables with `table.statistics.columns`, whose batches have statistics if Fluss's own client wrote them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pyarrow as pa
import pytest
from fluss_reading import bucket_of, wait_until_moved
from fluss_tables import append, new_path

from fluss_java_client import FlussJavaClient, plain
from fluss_tiering.formats.log.batch import read_header
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.table import TableInfo, TablePath
from fluss_tiering.storage.fluss.reading.reader import FlussSplitReader
from fluss_tiering.storage.fluss.rpc.calls.log import fetch_log
from fluss_tiering.storage.fluss.rpc.calls.tables import table
from fluss_tiering.storage.fluss.rpc.client import FlussClient

pytestmark = pytest.mark.fluss_versions("1.0")

COLUMNS = {"id": "BIGINT NOT NULL", "name": "STRING", "price": "DOUBLE", "flag": "BOOLEAN"}


def rows_of(first: int, end: int) -> list[list]:
    return [[each, f"name {each}" if each % 7 else None, each / 2, each % 2 == 0] for each in range(first, end)]


def put(fluss: FlussClient, made: TableInfo, first: int, end: int) -> None:
    """Append rows with this project's own calls, which make no statistics."""
    schema = arrow_schema(made.descriptor.columns)
    batch = pa.RecordBatch.from_pylist([dict(zip(COLUMNS, row, strict=True)) for row in rows_of(first, end)], schema)
    # Fluss cuts a batch to some columns correctly only if it is compressed as the option says.
    uncompressed = made.descriptor.properties.get("table.log.arrow.compression.type") == "NONE"
    append(fluss, made, batch, compression="NONE" if uncompressed else "ZSTD")


def mixed_log(fluss: FlussClient, java: FlussJavaClient, **properties: str) -> TableInfo:
    """Make a log of 6,000 rows: 1,000 by each client in turn.

    Fluss's own client may send its rows in several batches.
    """
    path = new_path("statistics")
    java.create(path, COLUMNS, properties={"table.statistics.columns": "*", **properties})
    made = fluss.call(table(path))
    for first in range(0, 6000, 2000):
        java.append(path, rows_of(first, first + 1000))
        put(fluss, made, first + 1000, first + 2000)
    return made


def turns_of(fluss: FlussClient, made: TableInfo) -> list[int]:
    """Return the magic of each client's batches, once for each turn."""
    return [magic for magic, _ in itertools.groupby(magics_of(fluss, made))]


def magics_of(fluss: FlussClient, made: TableInfo) -> list[int]:
    records = memoryview(fluss.call(fetch_log(made.path, bucket_of(made), 0)).records)
    magics, position = [], 0
    while (header := read_header(records, position)) is not None:
        magics.append(header.magic)
        position += header.size
    return magics


def read_here(fluss: FlussClient, path: TablePath, start: int, end: int, columns: Sequence[str] | None) -> list[list]:
    made = fluss.call(table(path))
    batches = list(FlussSplitReader(fluss).read_log(made, bucket_of(made), start, end, columns))
    return [plain(list(row.values())) for batch in batches for row in batch.records.to_pylist()]


MOVED = {"table.log.tiered.local-segments": "1", "table.log.arrow.compression.type": "NONE"}
"""Options of a table whose log soon goes to the remote folder."""


@pytest.mark.parametrize("columns", [None, ["id"], ["price", "id"], []])
def test_a_log_of_mixed_magics(fluss: FlussClient, java_client: FlussJavaClient, columns: list[str] | None) -> None:
    made = mixed_log(fluss, java_client)
    assert turns_of(fluss, made) == [1, 0, 1, 0, 1, 0]
    there = java_client.log(made.path, columns=columns or None)
    assert [row.offset for row in there] == list(range(6000))
    for start, end in ((0, 6000), (999, 1001), (1500, 4500)):
        expected = [[] if columns == [] else row.values for row in there[start:end]]
        assert read_here(fluss, made.path, start, end, columns) == expected


@pytest.mark.parametrize("columns", [None, ["price", "id"], []])
def test_remote_segments_of_mixed_magics(
    fluss: FlussClient, java_client: FlussJavaClient, columns: list[str] | None
) -> None:
    made = mixed_log(fluss, java_client, **MOVED)
    wait_until_moved(fluss, made)
    there = java_client.log(made.path, columns=columns or None)
    assert [row.offset for row in there] == list(range(6000))
    for start, end in ((0, 6000), (1500, 4500)):
        expected = [[] if columns == [] else row.values for row in there[start:end]]
        assert read_here(fluss, made.path, start, end, columns) == expected
