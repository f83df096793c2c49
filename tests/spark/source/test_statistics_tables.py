"""Tables with `table.statistics.columns` on a real Fluss 1.0 cluster: their rounds, and queries of them with Spark."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import duckdb
import pyarrow as pa
import pytest
from source_support import load
from spark_support import Tiering, served

import judges
from engine_support import new_path
from fluss_java_client import FlussJavaClient, LogRow, plain
from fluss_support import FlussCluster
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.table import TableBucket, TableInfo, WriteKind
from fluss_tiering.spark.audit.verify import verify_table
from fluss_tiering.storage.fluss.rpc.calls.log import fetch_log
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from fluss_tiering.storage.fluss.rpc.errors import FlussServerError
from needs import needs
from waiting import wait_until

pytestmark = pytest.mark.fluss_versions("1.0")

_COLUMNS: Final = {"id": "BIGINT NOT NULL", "name": "STRING", "price": "DOUBLE", "moment": "TIMESTAMP(6)"}
_MOVED: Final = {"table.log.tiered.local-segments": "1", "table.log.arrow.compression.type": "NONE"}
_TIERED: Final = {"table.datalake.enabled": "true", "table.datalake.freshness": "1s"}
_AT_ONCE: Final = 500
_FILTERS: Final = (
    "id >= 1200 AND id < 1400",
    "id IN (3, 777, 2999)",
    "id = -1",
    "name LIKE 'name 12%'",
    "name IS NULL AND id > 2000",
    "name IS NOT NULL AND id <= 10",
    "price > 1400",
    "price = 'NaN' OR price < 5",
    "price <= 0.0",
    "moment BETWEEN timestamp_ntz'2024-01-01 00:20:00' AND timestamp_ntz'2024-01-01 00:21:00.5'",
    "NOT (id > 100)",
)


@pytest.fixture(scope="module")
@needs("server")
def cluster(fluss_cluster: FlussCluster, spark, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiering]:
    with served(fluss_cluster.bootstrap, tmp_path_factory.mktemp("statistics"), spark) as tiering:
        yield tiering


def row_of(number: int) -> list[Any]:
    price = "NaN" if number % 97 == 0 else -0.0 if number % 89 == 0 else number / 2
    at = f"2024-01-01T00:{number // 60 % 60:02}:{number % 60:02}.{number:06}"
    return [number, None if number % 7 == 0 else f"name {number}", price, at]


def put(tiering: Tiering, table: TableInfo, rows: Sequence[Sequence[Any]]) -> None:
    """Write rows as `fluss-tiering put` does."""
    text = pa.table([[row[index] for row in rows] for index in (0, 1, 3)], names=["id", "name", "moment"])
    prices = pa.array([float(row[2]) for row in rows])
    batch = text.add_column(2, "price", prices).cast(arrow_schema(table.descriptor.columns))
    list(tiering.client.write_rows(table.path, WriteKind.APPEND, batch.to_batches()))


def written(tiering: Tiering, java: FlussJavaClient, **options: str) -> tuple[TableInfo, list[LogRow]]:
    """Make a table of six batches of both clients in turn; the columns with statistics change after four of them."""
    path = new_path()
    java.create(path, _COLUMNS, properties={"table.statistics.columns": "id,name,moment", **_TIERED, **options})
    (table,) = tiering.client.get_tables([path])
    for first in range(0, 6 * _AT_ONCE, 2 * _AT_ONCE):
        if first == 4 * _AT_ONCE:
            java.set_option(path, "table.statistics.columns", "*")
        java.append(path, [row_of(each) for each in range(first, first + _AT_ONCE)])
        put(tiering, table, [row_of(each) for each in range(first + _AT_ONCE, first + 2 * _AT_ONCE)])
    there = java.log(path)
    assert [row.values for row in there] == [plain(row_of(each)) for each in range(6 * _AT_ONCE)]
    return table, there


def as_text(rows: Sequence[Sequence[Any]]) -> Counter[str]:
    return Counter(json.dumps([plain(value) for value in row]) for row in rows)


def wait_until_moved(fluss: FlussClient, table: TableInfo) -> None:
    bucket = TableBucket(table.table_id, 0)

    def is_remote() -> bool:
        try:
            return bool(fluss.call(fetch_log(table.path, bucket, 0)).remote_segments)
        except FlussServerError:
            return False

    wait_until(is_remote)


@pytest.mark.parametrize("options", [{}, _MOVED], ids=["local", "remote"])
@pytest.mark.long
def test_a_table_with_statistics(
    cluster: Tiering, java_client: FlussJavaClient, fluss: FlussClient, options: dict[str, str]
) -> None:
    table, there = written(cluster, java_client, **options)
    if options:
        wait_until_moved(fluss, table)
    expected = as_text([row.values for row in there])

    # Every row is in the lake, as Spark and DuckDB read it.
    cluster.tier(table, claim_timeout_s=60)
    lake = cluster.lake(table)
    assert as_text([[row[name] for name in _COLUMNS] for row in lake]) == expected
    assert [row["__offset"] for row in lake] == list(range(len(there)))
    location = cluster.spark.sql(f"DESCRIBE TABLE EXTENDED {cluster.name(table)}").filter("col_name = 'Location'")
    metadata = judges.newest_metadata(location.collect()[0].data_type)
    by_duckdb = judges.read(judges.DUCKDB, metadata, columns=list(_COLUMNS))
    assert as_text([list(row.values()) for row in by_duckdb.to_pylist()]) == expected
    audit = verify_table(cluster.client, cluster.spark, table, target=cluster.target)
    assert audit.equal, audit

    # A query with filters finds what DuckDB finds in all rows, with push-down and without.
    rows = pa.table(
        {name: [row.values[index] for row in there] for index, name in enumerate(_COLUMNS)}
        | {"price": [float(row.values[2]) for row in there]}
    )
    connection = duckdb.connect()
    connection.register("arrow_rows", rows.set_column(3, "moment", rows["moment"].cast(pa.timestamp("us"))))
    # A filter on a registered table is Arrow's, for which NaN is not above all numbers.
    connection.sql("CREATE TABLE written AS SELECT * FROM arrow_rows")
    # Spark filters a frame that it has cached by itself.
    whole = load(cluster, table).cache()
    assert as_text(whole.collect()) == expected
    for condition in _FILTERS:
        asked = condition.replace("timestamp_ntz'", "TIMESTAMP '")
        wanted = as_text(connection.sql(f"SELECT * FROM written WHERE {asked}").fetchall())
        assert as_text(whole.filter(condition).collect()) == wanted, condition
        assert as_text(load(cluster, table).filter(condition).collect()) == wanted, condition
        counted = load(cluster, table).filter(condition).selectExpr("count(*)").collect()[0][0]
        assert counted == sum(wanted.values()), condition
    whole.unpersist()
