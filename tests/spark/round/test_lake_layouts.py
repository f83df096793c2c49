"""Lake tables in the clean layout, which have none of `__bucket`, `__offset` and `__timestamp`.

Partial ones are refused.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from every_type import NESTED, VALUES, plain
from source_support import columns
from spark_support import LEGACY, Tiering

from engine_support import new_path
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.lake.iceberg.catalog import IcebergCatalogs
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import SYSTEM_COLUMNS, Column, DataType, TableDescriptor, TableInfo, WriteKind
from fluss_tiering.spark.audit.report import Difference
from fluss_tiering.spark.maintenance.compact import compact_table
from fluss_tiering.spark.maintenance.expire import expire_snapshots
from judges import CLICKHOUSE, DUCKDB, PYICEBERG, SPARK, Predicate, read

DAY = columns(day="STRING NOT NULL")
TYPES = [*VALUES, *NESTED]
COLUMNS = (*columns(id="BIGINT NOT NULL"), *(Column(f"c{n}", DataType.parse(kind)) for n, kind in enumerate(TYPES)))
KEYED = {"primary_key": ("id",), "bucket_keys": ("id",)}
PARTITIONED = {"primary_key": ("id", "day"), "bucket_keys": ("id",), "partition_keys": ("day",)}
BY_KEY = {"table.datalake.delete-files": "equality"}
KEYS: dict[str, dict[str, Any]] = {
    "log": {},
    "log by key": {"bucket_keys": ("id",)},
    "log by two columns": {"bucket_keys": ("id", "day")},
    "partitioned log": {"partition_keys": ("day",)},
    "keyed": KEYED,
    "keyed by two columns": {"primary_key": ("id", "day")},
    "partitioned keyed": PARTITIONED,
    "keyed by bucket": {**KEYED, "properties": {"table.datalake.partition-by": "bucket(3, id)"}},
    "keyed, deletes by key": {**KEYED, "properties": BY_KEY},
    "partitioned keyed, deletes by key": {**PARTITIONED, "properties": BY_KEY},
}


@pytest.fixture(params=KEYS)
def table(request: pytest.FixtureRequest, tiering: Tiering) -> TableInfo:
    """Return a table whose first round makes a clean lake table."""
    keys = dict(KEYS[request.param])
    more = keys.pop("properties", {})
    days = DAY if any("day" in names for names in keys.values()) else ()
    descriptor = TableDescriptor((*COLUMNS, *days), num_buckets=3, properties=OPTIONS | more, **keys)
    return tiering.client.create_table(new_path(), descriptor)


OPTIONS = {"table.datalake.enabled": "true"}


def make_clean(tiering: Tiering, table: TableInfo, left: tuple[str, ...] = ()) -> None:
    """Make the lake table with those of the system columns that are left."""
    lake = IcebergCatalogs(tiering.spark).open_table(table).java_table
    if not table.descriptor.bucket_keys:
        lake.updateSpec().removeField("__bucket").commit()
    lake.replaceSortOrder().commit()
    dropped = ", ".join(name for name in SYSTEM_COLUMNS if name not in left)
    tiering.spark.sql(f"ALTER TABLE {tiering.name(table)} DROP COLUMNS ({dropped})")


def write(tiering: Tiering, table: TableInfo, ids: range, turn: int = 0, days: tuple[str, ...] = ("mo", "tu")) -> list:
    """Write a row for each id, and for each day if the table has days. Return the rows."""
    values = {f"c{n}": {**VALUES, **NESTED}[kind][turn] for n, kind in enumerate(TYPES)}
    empty = dict.fromkeys(values)
    rows = [{"id": key, **(empty if key % 5 == 4 else values)} for key in ids]
    if _has_days(table):
        rows = [{**row, "day": day} for day in days for row in rows]
    kind = WriteKind.UPSERT if table.has_primary_key else WriteKind.APPEND
    batch = pa.Table.from_pylist(rows, schema=arrow_schema(table.descriptor.columns))
    assert sum(tiering.client.write_rows(table.path, kind, [batch])) == len(rows)
    return rows


def _has_days(table: TableInfo) -> bool:
    return DAY[0] in table.descriptor.columns


def delete(tiering: Tiering, table: TableInfo, ids: range) -> None:
    """Delete the rows of these ids of the first day."""
    schema = arrow_schema([table.descriptor.column(name) for name in table.descriptor.primary_key])
    batch = pa.Table.from_pylist([{"id": key, "day": "mo"} for key in ids], schema=schema)
    list(tiering.client.write_rows(table.path, WriteKind.DELETE, [batch]))


def in_lake(tiering: Tiering, table: TableInfo) -> Counter[str]:
    rows = tiering.spark.table(tiering.name(table)).collect()
    return Counter(repr(sorted(plain(row).items())) for row in rows)


def counted(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(repr(sorted(row.items())) for row in rows)


@pytest.mark.sampled(1)
def test_a_clean_table_is_tiered_verified_compacted_and_read(tiering: Tiering, table: TableInfo) -> None:
    first, second = range(40), range(30, 60)
    expected = write(tiering, table, first)
    tiering.client.take_kv_snapshots([table.path]) if table.has_primary_key else None
    tiering.tier(table)
    assert in_lake(tiering, table) == counted(expected)
    changed = write(tiering, table, second, turn=1)
    if table.has_primary_key:
        delete(tiering, table, range(10))
        replaced = {(row["id"], row.get("day")) for row in changed} | {(key, "mo") for key in range(10)}
        replaced |= {(key, None) for key in range(10)}
        expected = [row for row in expected if (row["id"], row.get("day")) not in replaced]
    expected += changed
    tiering.tier(table)

    assert in_lake(tiering, table) == counted(expected)
    assert set(tiering.spark.table(tiering.name(table)).columns) == {each.name for each in table.descriptor.columns}
    audit = tiering.audit(table)
    assert audit.equal, audit
    assert sum(each.lake.rows for each in audit.buckets) == len(expected)
    assert compact_table(tiering.spark, table, min_input_files=2).error is None
    assert expire_snapshots(tiering.client, tiering.spark, table).error is None
    assert in_lake(tiering, table) == counted(expected)
    assert tiering.audit(table).equal
    lake = tiering.lake_table(table)
    metadata = str(lake.java_table.operations().current().metadataFileLocation())
    for judge in (DUCKDB, CLICKHOUSE, SPARK, PYICEBERG):
        found = read(judge, metadata, Predicate("id", ">=", 30), columns=["id"], spark=tiering.spark)
        assert sorted(found.column("id").to_pylist()) == sorted(row["id"] for row in expected if row["id"] >= 30), judge
    write(tiering, table, range(5), turn=1)
    tiering.tier(table)
    assert tiering.audit(table).equal


@pytest.mark.sampled(1)
def test_an_audit_of_a_clean_table_names_rows_that_differ(tiering: Tiering, table: TableInfo) -> None:
    write(tiering, table, range(20))
    tiering.tier(table)
    tiering.spark.sql(f"DELETE FROM {tiering.name(table)} WHERE id = 7")
    tiering.spark.sql(f"UPDATE {tiering.name(table)} SET c3 = 12345 WHERE id = 8")

    audit = tiering.audit(table)

    assert not audit.equal
    kinds = Counter(each.kind for each in audit.differences)
    days = 2 if _has_days(table) else 1
    if table.has_primary_key:
        assert kinds == {Difference.MISSING: days, Difference.CHANGED: days}
        assert {each.key["id"] for each in audit.differences} == {7, 8}
    else:
        assert kinds == {Difference.MISSING: 2 * days, Difference.EXTRA: days}
        assert all('"id":' in each.key["__row"] for each in audit.differences)


@pytest.mark.parametrize("left", [("__offset",), ("__bucket", "__timestamp")])
@pytest.mark.sampled(1)
def test_a_table_with_some_of_the_system_columns_is_refused_by_name(tiering: Tiering, left: tuple[str, ...]) -> None:
    descriptor = TableDescriptor(COLUMNS, ("id",), ("id",), num_buckets=2, properties=OPTIONS | LEGACY)
    table, other = (tiering.client.create_table(new_path(), descriptor) for _ in range(2))
    make_clean(tiering, table, left)
    for each in (table, other):
        write(tiering, each, range(3))

    refused, gone_on = tiering.tier_all(table, other)

    missing = [name for name in SYSTEM_COLUMNS if name not in left]
    assert f"has the system columns {', '.join(left)} and lacks {', '.join(missing)}" in refused.error
    assert "expected all of them (legacy layout) or none (clean layout)" in refused.error
    assert gone_on.error is None
    with pytest.raises(FlussTieringError, match="legacy layout") as raised:
        tiering.audit(table)
    assert raised.value.code is ErrorCode.LAKE_TABLE_MISMATCH
    statement = refused.error[refused.error.index("ALTER TABLE") :]
    tiering.spark.sql(statement)
    tiering.client.resume_tables([table.path])
    tiering.tier(table)
    assert tiering.audit(table).equal
