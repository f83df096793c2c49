"""Logs that Fluss's own Java client wrote, read here and by that client."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from fluss_reading import read
from fluss_tables import new_path

from fluss_java_client import FlussJavaClient, plain
from fluss_tiering.model.table import TablePath
from fluss_tiering.storage.fluss.reading.reader import FlussSplitReader
from fluss_tiering.storage.fluss.rpc.calls.tables import table
from fluss_tiering.storage.fluss.rpc.client import FlussClient

_COLUMNS = {
    "id": "BIGINT NOT NULL",
    "yes": "BOOLEAN",
    "single": "FLOAT",
    "price": "DOUBLE",
    "name": "STRING",
    "raw": "BYTES",
    "day": "DATE",
    "at": "TIMESTAMP(6)",
    "total": "DECIMAL(12, 2)",
    "wide": "DECIMAL(30, 5)",
    "numbers": "ARRAY<INT>",
}
_AT = dt.datetime(2024, 2, 29, 23, 59, 59, 999_999)  # noqa: DTZ001 - of a TIMESTAMP without a zone
_ROWS = [
    [
        1,
        True,
        0.5,
        1e300,
        "naïve 😀",
        b"\x00\xff",
        dt.date(1969, 12, 31),
        _AT,
        Decimal("-1.50"),
        Decimal("7.00001"),
        [1],
    ],
    [2, False, float("inf"), float("nan"), "", b"", dt.date(2024, 2, 29), _AT, Decimal("0.00"), None, [None, -5]],
    [3, *[None] * (len(_COLUMNS) - 1)],
]


def read_here(fluss: FlussClient, path: TablePath, end: int) -> list[list]:
    """Return the values of the rows [0, end) of bucket 0 as the Java client prints them."""
    batches = read(FlussSplitReader(fluss), fluss.call(table(path)), 0, end)
    rows = pa.Table.from_batches([batch.records for batch in batches]).to_pylist()
    return [plain(list(row.values())) for row in rows]


def test_a_log_of_the_java_client(fluss: FlussClient, java_client: FlussJavaClient) -> None:
    path = new_path("java")
    java_client.create(path, _COLUMNS)
    java_client.append(path, _ROWS)
    there = java_client.log(path)
    assert [row.values for row in there] == [plain(row) for row in _ROWS]
    assert [(row.offset, row.kind) for row in there] == [(0, "+A"), (1, "+A"), (2, "+A")]
    assert read_here(fluss, path, 3) == [row.values for row in there]


@pytest.mark.parametrize("key", [[], ["id"]], ids=["log table", "primary-key table"])
@pytest.mark.parametrize("compression", ["LZ4_FRAME", "ZSTD", "NONE"])
@pytest.mark.sampled(3)
def test_lists_and_maps_without_elements(
    fluss: FlussClient, java_client: FlussJavaClient, compression: str, key: list[str]
) -> None:
    """A batch of the log has no element of any list, so that Arrow's Java library compresses buffers without bytes."""
    path = new_path("java")
    columns = {
        "id": "BIGINT NOT NULL",
        "texts": "ARRAY<STRING>",
        "counts": "MAP<STRING NOT NULL, INT>",
        "row": "ROW<inner ARRAY<ROW<a BIGINT, b ARRAY<STRING>>>, c INT>",
    }
    java_client.create(path, columns, primary_key=key, properties={"table.log.arrow.compression.type": compression})
    batches = [[[1, [], [], [[], 1]]], [[2, None, None, None]], [[3, ["a"], [["k", 1]], [[[1, []]], None]]]]
    write = java_client.upsert if key else java_client.append
    for batch in batches:
        write(path, batch)
    there = java_client.log(path)
    assert [row.values for row in there] == [row for (row,) in batches]
    assert read_here(fluss, path, 3) == [row.values for row in there]
