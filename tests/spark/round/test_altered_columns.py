"""Columns of tables of the embedded storage are altered while rounds run. Readers that are not ours judge the lake."""

from __future__ import annotations

import random
import re
import uuid
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from held_writer import HeldStage
from source_support import columns, load
from spark_support import Tiering, in_background

import judges
from engine_support import new_path
from fluss_tiering.client import TieringClient
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.lake.iceberg.catalog import IcebergCatalogs
from fluss_tiering.lake.iceberg.table import IcebergTable
from fluss_tiering.lake.protocol import LakeCommit
from fluss_tiering.model.column_changes import AddColumn, ColumnChange, DropColumn, RenameColumn, WidenColumn
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, DataType, TableBucket, TableDescriptor, TableInfo, WriteKind
from fluss_tiering.spark.maintenance.compact import compact_table
from waiting import WAIT_S

COLUMNS = columns(id="INT NOT NULL", day="STRING NOT NULL", name="STRING", count="INT NOT NULL")
WIDER = {
    "TINYINT": "SMALLINT",
    "SMALLINT": "INT",
    "INT": "BIGINT",
    "FLOAT": "DOUBLE",
    "DECIMAL(5, 2)": "DECIMAL(20, 2)",
}
TYPES = (*WIDER, "STRING", "BOOLEAN", "ARRAY<INT>")
KEYED: dict[str, Any] = {"primary_key": ("id",), "bucket_keys": ("id",)}
LEGACY = {"table.datalake.layout": "legacy"}


def value(kind: str, chance: random.Random) -> Any:
    if chance.random() < 0.2:
        return None
    number = chance.randrange(100)
    if kind.startswith("DECIMAL"):
        return Decimal(number) / 4
    values = {"FLOAT": number / 4, "DOUBLE": number / 4, "STRING": f"text {number}", "BOOLEAN": number > 50}
    return [number, None] if kind == "ARRAY<INT>" else values.get(kind, number)


@dataclass
class Model:
    """What a table must hold: its columns by an id of the test, and its rows by their key.

    Attributes:
        table: The table as it was created.
        rows: The values of each row by the ids of the columns that it was written with.
    """

    tiering: Tiering
    table: TableInfo
    chance: random.Random
    names: dict[int, str] = field(default_factory=lambda: dict(enumerate(column.name for column in COLUMNS)))
    kinds: dict[int, str] = field(default_factory=lambda: {2: "STRING", 3: "INT"})
    rows: dict[int, dict[int, Any]] = field(default_factory=dict)
    next_key: int = 0

    def alter(self) -> None:
        changes = [self.change() for _ in range(self.chance.choice((1, 1, 1, 3)))]
        altered = self.tiering.client.alter_table(self.table.path, column_changes=changes)
        found = [(column.name, column.data_type.root) for column in altered.descriptor.columns[2:]]
        assert found == [(self.names[number], DataType.parse(kind).root) for number, kind in self.kinds.items()]

    def change(self) -> ColumnChange:
        number = self.chance.choice(list(self.kinds)) if self.kinds else None
        kind = self.chance.choice(("add", "add", "rename", "drop", "widen"))
        if number is None or kind == "add":
            number = len(self.names)
            dropped = sorted({*self.names.values()} - {self.names[each] for each in (0, 1, *self.kinds)})
            # A new column may have the name of one that was dropped or renamed.
            self.names[number] = self.chance.choice([f"c{number}", *dropped])
            self.kinds[number] = self.chance.choice(TYPES)
            return AddColumn(Column(self.names[number], DataType.parse(self.kinds[number])))
        name = self.names[number]
        if kind == "rename":
            self.names[number] = f"r{len(self.names)} {self.chance.randrange(1_000_000)}"
            return RenameColumn(name, self.names[number])
        if kind == "widen" and self.kinds[number] in WIDER:
            self.kinds[number] = WIDER[self.kinds[number]]
            return WidenColumn(name, DataType.parse(self.kinds[number]))
        del self.kinds[number]
        return DropColumn(name)

    def write(self) -> None:
        (present,) = self.tiering.client.get_tables([self.table.path])
        new: dict[int, dict[int, Any]] = {}
        for _ in range(self.chance.randrange(1, 12)):
            again = self.table.has_primary_key and self.rows and self.chance.random() < 0.4
            key = self.chance.choice(list(self.rows)) if again else self.next_key
            self.next_key += not again
            # Row 3 of the first columns may not be null.
            values = {number: value(kind, self.chance) for number, kind in self.kinds.items()}
            day = f"d{key % 3}"
            new[key] = {0: key, 1: day, **values, **({3: key} if 3 in values else {})}
        self.rows |= new
        rows = [{self.names[number]: each for number, each in row.items()} for row in new.values()]
        schema = arrow_schema(present.descriptor.columns)
        if self.chance.random() < 0.3:
            # A writer that does not know the newest column yet.
            last = schema.names[-1]
            if max(self.kinds, default=0) > 3 and self.names[max(self.kinds)] == last:
                schema = schema.remove(len(schema) - 1)
                for row in new.values():
                    row.pop(max(self.kinds))
        batch = pa.Table.from_pylist(rows, schema=schema)
        kind = WriteKind.UPSERT if self.table.has_primary_key else WriteKind.APPEND
        assert sum(self.tiering.client.write_rows(self.table.path, kind, [batch])) == len(new)

    def delete(self) -> None:
        keys = self.chance.sample(sorted(self.rows), min(len(self.rows), 3))
        batch = pa.Table.from_pylist([{"id": key, "day": self.rows[key][1]} for key in keys])
        batch = (
            batch.cast(arrow_schema(COLUMNS[:2])) if "day" in self.table.descriptor.primary_key else batch.select([0])
        )
        assert sum(self.tiering.client.write_rows(self.table.path, WriteKind.DELETE, [batch])) == len(keys)
        for key in keys:
            del self.rows[key]

    def expected(self) -> list[dict[str, Any]]:
        wanted = {number: self.names[number] for number in (0, 1, *self.kinds)}
        return [{name: row.get(number) for number, name in wanted.items()} for _, row in sorted(self.rows.items())]

    def check(self) -> None:
        expected, tiering = self.expected(), self.tiering
        (present,) = tiering.client.get_tables([self.table.path])
        lake = tiering.lake_table(present)
        names = [column.name for column in present.descriptor.columns]
        for judge in (judges.SPARK, judges.DUCKDB, judges.PYICEBERG):
            found = judges.read(judge, lake.metadata_file, columns=names, spark=tiering.spark).to_pylist()
            assert sorted(found, key=lambda row: row["id"]) == expected, judge
        assert tiering.equal(present)
        assert [row.asDict() for row in load(tiering, present).orderBy("id").collect()] == expected


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("definition", "options"),
    [
        ({}, LEGACY),
        ({"partition_keys": ("day",)}, {}),
        (KEYED, {}),
        ({**KEYED, "primary_key": ("id", "day"), "partition_keys": ("day",)}, LEGACY),
    ],
    ids=["legacy log", "partitioned log", "keyed", "legacy partitioned keyed"],
)
def test_a_history_of_changes_with_rows_between(
    tiering: Tiering, definition: dict[str, Any], options: dict[str, str], seed: int
) -> None:
    chance = random.Random(f"{definition} {seed}")
    properties = {"table.datalake.enabled": "true", **options}
    descriptor = TableDescriptor(COLUMNS, num_buckets=2, properties=properties, **definition)
    model = Model(tiering, tiering.client.create_table(new_path(), descriptor), chance)
    if model.table.has_primary_key and seed:
        # The first round then reads rows of several schemas from KV snapshots.
        for _ in range(3):
            model.write()
            tiering.client.take_kv_snapshots([model.table.path])
            model.alter()
    for _ in range(5):
        for _ in range(chance.randrange(1, 4)):
            model.write()
            if chance.random() < 0.8:
                model.alter()
        if model.table.has_primary_key:
            model.delete()
        model.write()
        tiering.tier(model.table)
        if chance.random() < 0.5:
            # An audit, a compaction and readers find the lake table before it follows.
            model.alter()
            assert tiering.equal(tiering.client.get_tables([model.table.path])[0])
            compact_table(tiering.spark, tiering.client.get_tables([model.table.path])[0], min_input_files=2)
            model.write()
            tiering.tier(model.table)
        model.check()


CHANGES: tuple[ColumnChange, ...] = (
    WidenColumn("count", DataType.parse("BIGINT NOT NULL")),
    RenameColumn("count", "total"),
    DropColumn("name"),
    AddColumn(Column("name", DataType.parse("DOUBLE"), "a comment")),
)


@pytest.fixture(params=["log", "keyed"])
def table(request: pytest.FixtureRequest, tiering: Tiering) -> TableInfo:
    """Return a table with three rows."""
    keys = KEYED if request.param == "keyed" else {}
    properties = {"table.datalake.enabled": "true"}
    made = tiering.client.create_table(new_path(), TableDescriptor(COLUMNS, properties=properties, **keys))
    write(tiering, made, [{"id": key, "day": "d", "name": f"old {key}", "count": key} for key in range(3)])
    return made


def write(tiering: Tiering, table: TableInfo, rows: list[dict[str, Any]]) -> None:
    kind = WriteKind.UPSERT if table.has_primary_key else WriteKind.APPEND
    batch = pa.Table.from_pylist(rows, schema=arrow_schema(table.descriptor.columns))
    assert sum(tiering.client.write_rows(table.path, kind, [batch])) == len(rows)


def in_lake(tiering: Tiering, table: TableInfo) -> list[tuple[Any, ...]]:
    """Return what the lake has: the id, the count or total, and the name of each row, sorted."""
    (last,) = {"count", "total"} & {*tiering.spark.table(tiering.name(table)).columns}
    rows = tiering.spark.sql(f"SELECT id, {last}, name FROM {tiering.name(table)}").collect()
    return sorted(map(tuple, rows), key=repr)


OLD = [(key, key, f"old {key}") for key in range(3)]
ALTERED = [(key, key, None) for key in range(3)]


@pytest.mark.sampled(1)
def test_columns_that_are_altered_while_a_round_writes_are_followed_by_the_next_one(
    tiering: Tiering, table: TableInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        held = HeldStage(tmp_path, patched)
        running = in_background(tiering, table)
        held.wait()
        altered = tiering.client.alter_table(table.path, column_changes=CHANGES)
        write(tiering, altered, [{"id": 5, "day": "d", "total": 2**40, "name": 0.5}])
        held.go()
        (result,) = running.result(WAIT_S)
    assert result.error is None
    assert in_lake(tiering, table) == OLD
    assert tiering.equal(altered)

    tiering.tier(table)

    assert in_lake(tiering, table) == [*ALTERED, (5, 2**40, 0.5)]
    assert tiering.equal(altered)


@pytest.mark.sampled(1)
def test_a_round_that_dies_between_the_change_of_the_lake_and_its_commit(
    tiering: Tiering, table: TableInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiering.tier(table)
    altered = tiering.client.alter_table(table.path, column_changes=CHANGES)
    write(tiering, altered, [{"id": 5, "day": "d", "total": 2**40, "name": 0.5}])
    with monkeypatch.context() as patched:
        patched.setattr(IcebergTable, "commit", died)
        assert tiering.tier_all(table)[0].error is not None
    # The newest snapshot still has the columns from before.
    assert in_lake(tiering, table) == ALTERED
    assert tiering.equal(altered)
    assert compact_table(tiering.spark, altered, min_input_files=1).error is None
    assert tiering.equal(altered)
    ids = lake_ids(tiering, altered)
    tiering.client.resume_tables([table.path])

    tiering.tier(table)

    assert in_lake(tiering, table) == [*ALTERED, (5, 2**40, 0.5)]
    assert tiering.equal(altered)
    assert lake_ids(tiering, altered) == ids


def died(*_: Any, **__: Any) -> int:
    raise FlussTieringError(ErrorCode.STORAGE, "the driver has died here")


def lake_ids(tiering: Tiering, table: TableInfo) -> dict[str, int]:
    lake = tiering.lake_table(table)
    return {field.name(): field.fieldId() for field in lake.java_table.schema().columns()}


@pytest.mark.sampled(1)
def test_a_stale_round_with_an_older_schema_loses_or_is_right(tiering: Tiering, table: TableInfo) -> None:
    tiering.tier(table)
    catalogs = IcebergCatalogs(tiering.spark)
    first = tiering.lake_table(table)
    second = tiering.lake_table(table)
    assert first is not None
    assert second is not None
    altered = tiering.client.alter_table(table.path, column_changes=CHANGES)
    # The lake table has followed, and the stale round commits before the other one.
    assert catalogs.find_table(altered, follow=True) is not None
    commit(first, table, 7)
    assert in_lake(tiering, table) == [*ALTERED, (7, 7, None)]
    # The other one has committed.
    newest = catalogs.find_table(altered, follow=True)
    assert newest is not None
    commit(newest, altered, 8)
    with pytest.raises(FlussTieringError) as refused:
        commit(second, table, 9)
    assert refused.value.code is ErrorCode.LAKE_CONFLICT
    assert in_lake(tiering, table) == [*ALTERED, (7, 7, None), (8, 8, 8.0)]
    # It does not take the columns back.
    for follow in (True, False):
        with pytest.raises(
            FlussTieringError, match=r"has the columns of schema 2 .* expected schema 1 or an older one"
        ):
            catalogs.find_table(table, follow=follow)


def commit(lake: IcebergTable, table: TableInfo, key: int) -> None:
    row = {"id": key, "day": "d", "name": str(key) if table.schema_id == 1 else key, "count": key, "total": key}
    batch = pa.RecordBatch.from_pylist([row], schema=arrow_schema(table.descriptor.columns))
    writer = lake.file_writer().open_piece(
        0, lake.piece_location(0, str(key)), 0, (), () if table.has_primary_key else None
    )
    writer.write(batch, np.array([key]), np.array([key]))
    lake.commit(
        [writer.close()],
        LakeCommit(table.table_id, 1, str(uuid.uuid4()), "/offsets", {TableBucket(table.table_id, 0): key}),
    )


@pytest.mark.sampled(1)
def test_a_round_that_waited_while_another_one_followed_asks_for_the_table_again(
    tiering: Tiering, table: TableInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiering.tier(table)
    altered = tiering.client.alter_table(table.path, column_changes=CHANGES)
    write(tiering, altered, [{"id": 5, "day": "d", "total": 2**40, "name": 0.5}])
    tiering.tier(table)
    write(tiering, altered, [{"id": 6, "day": "d", "total": 6, "name": 6.5}])
    get_tables, before = TieringClient.get_tables, [[table]]
    monkeypatch.setattr(
        TieringClient, "get_tables", lambda client, paths: before.pop() if before else get_tables(client, paths)
    )

    tiering.tier(table)

    assert in_lake(tiering, table) == [*ALTERED, (5, 2**40, 0.5), (6, 6, 6.5)]


@pytest.mark.sampled(1)
def test_what_was_done_to_the_lake_table_by_hand(tiering: Tiering, table: TableInfo) -> None:
    tiering.tier(table)
    lake = tiering.name(table)
    for change in ("ADD COLUMN NOTE STRING", "ALTER COLUMN count TYPE BIGINT"):
        tiering.spark.sql(f"ALTER TABLE {lake} {change}")
    iceberg = tiering.spark._jvm.org.apache.iceberg
    by_name = iceberg.expressions.Expressions.ref("name"), iceberg.NullOrder.NULLS_FIRST
    tiering.lake_table(table).java_table.replaceSortOrder().asc(*by_name).commit()
    altered = tiering.client.alter_table(
        table.path, column_changes=[*CHANGES, AddColumn(Column("note", DataType.parse("INT")))]
    )
    write(tiering, altered, [{"id": 5, "day": "d", "total": 2**40, "note": 1}])

    # A column by which the lake table is sorted stays there.
    for name in ("name", "NOTE"):
        error = tiering.fail(table)
        assert f"has a column `{name}` already" in error
        tiering.spark.sql(re.search(r"ALTER TABLE .*", error)[0])
    tiering.tier(table)
    assert in_lake(tiering, table) == [*ALTERED, (5, 2**40, None)]
    assert tiering.equal(altered)


@pytest.mark.sampled(1)
def test_a_new_column_of_the_name_of_a_partition_field(tiering: Tiering, table: TableInfo) -> None:
    tiering.tier(table)
    lake = tiering.lake_table(table).java_table
    lake.updateSpec().addField("name").commit()
    again = [DropColumn("name"), AddColumn(Column("name", DataType.parse("DOUBLE")))]
    write(tiering, tiering.client.alter_table(table.path, column_changes=again), [{"id": 5, "day": "d", "count": 5}])

    error = str(tiering.tier_all(table)[0].error)

    assert f"fluss-tiering tables alter {table.path} --rename-column 'name=name_2'" in error
    altered = tiering.client.alter_table(table.path, column_changes=[RenameColumn("name", "name_2")])
    error = str(tiering.tier_all(table)[0].error)
    assert re.search(r"ALTER TABLE .* DROP PARTITION FIELD `name`", error)
    lake.refresh()
    lake.updateSpec().removeField("name").commit()
    tiering.client.resume_tables([table.path])
    tiering.tier(table)
    assert tiering.equal(altered)
