"""Columns of tables of the embedded storage are altered while rounds run. Readers that are not ours judge the lake."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from source_support import columns, load
from spark_support import Tiering

import judges
from engine_support import new_path
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.lake.iceberg.catalog import IcebergCatalogs
from fluss_tiering.model.column_changes import AddColumn, ColumnChange, DropColumn, RenameColumn, WidenColumn
from fluss_tiering.model.table import Column, DataType, TableDescriptor, TableInfo, WriteKind
from fluss_tiering.spark.maintenance.compact import compact_table

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
CLEAN = {"table.datalake.layout": "clean"}


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
        lake = IcebergCatalogs(tiering.spark).find_table(present)
        assert lake is not None
        names = [column.name for column in present.descriptor.columns]
        for judge in (judges.SPARK, judges.DUCKDB, judges.PYICEBERG):
            found = judges.read(judge, lake.metadata_file, columns=names, spark=tiering.spark).to_pylist()
            assert sorted(found, key=lambda row: row["id"]) == expected, judge
        assert tiering.equal(present)
        assert [row.asDict() for row in load(tiering, present).orderBy("id").collect()] == expected


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("definition", "options"),
    [
        ({}, {}),
        ({"partition_keys": ("day",)}, CLEAN),
        (KEYED, CLEAN),
        ({**KEYED, "primary_key": ("id", "day"), "partition_keys": ("day",)}, {}),
    ],
    ids=["log", "clean partitioned log", "clean keyed", "partitioned keyed"],
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
