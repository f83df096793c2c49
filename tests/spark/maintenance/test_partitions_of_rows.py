"""Maintenance of lake tables whose partitions follow from their rows."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from maintenance_support import compact, data_files, delete_files
from source_support import columns
from spark_support import Tiering

from engine_support import new_path
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.lake.iceberg.catalog import IcebergCatalogs
from fluss_tiering.model.table import TableDescriptor, TableInfo, WriteKind
from fluss_tiering.model.table_options import LAKE_PARTITION_BY
from fluss_tiering.spark.maintenance import maintain as maintain_module
from fluss_tiering.spark.maintenance.maintain import Maintenance, maintain_table
from fluss_tiering.spark.maintenance.plan import ALL_STEPS, MaintenanceLimits, plan_table

COLUMNS = columns(
    id="INT NOT NULL", t="TIMESTAMP(3)", z="TIMESTAMP_LTZ(6)", d="DATE", s="STRING", n="BIGINT", b="BOOLEAN"
)
BY = (
    "hours(t), d, truncate(2, s)",
    "days(t), months(d), truncate(10, n), b",
    "months(t), years(d), bucket(3, s), n",
    "years(t), days(d), days(z), s",
)
DELETES = 5
MERGES = MaintenanceLimits(min_input_files=DELETES - 1, delete_files=100)
SMALL = MaintenanceLimits(min_input_files=2, delete_files=1)


def row(number: int) -> dict[str, object]:
    """Return a row of one of three partitions, in one of which all is null."""
    kind = number % 3
    if kind == 2:
        return {"id": number}
    at = dt.datetime(1969 + 57 * kind, 11, 3, 10 + kind)  # noqa: DTZ001 - has no zone
    return {
        "id": number,
        "t": at,
        "z": at.replace(tzinfo=dt.UTC),
        "d": at.date(),
        "s": "xy"[kind] * 5,
        "n": 100 * kind - 33,
        "b": kind == 0,
    }


def made(tiering: Tiering, by: str) -> TableInfo:
    properties = {
        "table.datalake.enabled": "true",
        LAKE_PARTITION_BY.key: by,
        "iceberg.write.delete.granularity": "partition",
        "iceberg.write.delete.mode": "merge-on-read",
    }
    return tiering.client.create_table(new_path(), TableDescriptor(COLUMNS, primary_key=("id",), properties=properties))


def write(tiering: Tiering, table: TableInfo, numbers: range) -> None:
    rows = pa.Table.from_pylist([row(number) for number in numbers], schema=arrow_schema(COLUMNS))
    for _ in tiering.client.write_rows(table.path, WriteKind.UPSERT, [rows]):
        pass


def tier(tiering: Tiering, tables: list[TableInfo]) -> None:
    for result in tiering.tier_all(*tables):
        assert result.error is None, result.error


def maintain(tiering: Tiering, table: TableInfo, limits: MaintenanceLimits) -> Maintenance:
    done = maintain_table(tiering.client, tiering.spark, table, limits=limits)
    assert (done.error, done.conflicts) == (None, 0)
    return done


@pytest.mark.slow
def test_files_of_each_partition_are_merged_and_compacted(tiering: Tiering) -> None:
    tables = [made(tiering, text) for text in BY]
    for table in tables:
        write(tiering, table, range(60))
    tier(tiering, tables)
    for table in tables:
        by, lake = table.descriptor.properties[LAKE_PARTITION_BY.key], tiering.name(table)
        for number in range(DELETES):
            tiering.spark.sql(f"DELETE FROM {lake} WHERE id BETWEEN {3 * number} AND {3 * number + 2}")
        assert (len(data_files(tiering, table)), delete_files(tiering, table)) == (3, 3 * DELETES), by
        plan = plan_table(tiering.client, tiering.spark, table, ALL_STEPS, MERGES, with_merges=True)
        assert plan is not None
        assert [(each.files, each.data_files, each.fewer) for each in plan.merges] == [(DELETES, 1, DELETES - 1)] * 3
        assert maintain(tiering, table, MERGES).rewritten.files == 0
        assert (len(data_files(tiering, table)), delete_files(tiering, table)) == (3, 3), by
        write(tiering, table, range(60))
    tier(tiering, tables)
    for table in tables:
        by = table.descriptor.properties[LAKE_PARTITION_BY.key]
        assert maintain(tiering, table, SMALL).rewritten.files == 6, by
        assert (len(data_files(tiering, table)), delete_files(tiering, table)) == (3, 0), by
        assert tiering.equal(table), by


@pytest.mark.slow
def test_files_of_an_older_partitioning_are_left_to_compact(tiering: Tiering) -> None:
    table = made(tiering, "days(t)")
    for numbers in (range(30), range(20, 50)):
        write(tiering, table, numbers)
        tier(tiering, [table])
    lake = IcebergCatalogs(tiering.spark).open_table(table).java_table
    lake.updateSpec().removeField("t_day").addField("s").commit()
    for numbers in (range(40, 60), range(45, 65)):
        write(tiering, table, numbers)
        tier(tiering, [table])
    assert len(data_files(tiering, table)) == 12
    # A group of older files may come along, if its rows would be in one of the partitions that are compacted.
    assert 6 <= maintain(tiering, table, SMALL).rewritten.files < 12
    assert len(data_files(tiering, table)) <= 9
    assert tiering.equal(table)
    compact(tiering, table)
    assert len(data_files(tiering, table)) == 3
    assert tiering.equal(table)


@pytest.mark.slow
def test_a_step_that_fails_while_nobody_changes_the_table_is_an_error(
    tiering: Tiering, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tiering.table()
    for name in ("a", "b"):
        tiering.round(table, {1: name})
    rewrite = maintain_module.rewrite_data_files

    def refused(*arguments: object, **options: object) -> object:
        jvm = tiering.spark.sparkContext._jvm
        assert jvm is not None
        return jvm.org.apache.iceberg.exceptions.ValidationException.check(False, "no such value", None)

    monkeypatch.setattr(maintain_module, "rewrite_data_files", refused)
    failed = maintain_table(tiering.client, tiering.spark, table, limits=SMALL)
    assert failed.error is not None
    assert "no such value" in failed.error

    def disturbed(*arguments: object, **options: object) -> object:
        tiering.round(table, {2: "c"})
        return refused()

    monkeypatch.setattr(maintain_module, "rewrite_data_files", disturbed)
    done = maintain_table(tiering.client, tiering.spark, table, limits=SMALL)
    assert (done.error, done.conflicts) == (None, 1)
    monkeypatch.setattr(maintain_module, "rewrite_data_files", rewrite)
    assert maintain(tiering, table, SMALL).rewritten.files == 3
