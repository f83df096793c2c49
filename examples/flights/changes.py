"""The rows that are written before each of the two rounds, and the rows that the tables must hold after it.

Both are computed from the source files alone. Nothing is read back from a storage or a lake, so that a fault of either
cannot hide in the expected rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from examples.flights import source
from examples.flights.tables import TABLES, ExampleTable
from fluss_tiering.model.table import WriteKind


@dataclass(frozen=True, slots=True)
class Change:
    """Rows that are written together. Those of a DELETE are the rows as they were before."""

    table: ExampleTable
    kind: WriteKind
    rows: pa.Table


def first_load() -> list[Change]:
    """Return every row of every source file."""
    return [
        Change(table, WriteKind.UPSERT if table.primary_key else WriteKind.APPEND, source.read(table.name))
        for table in TABLES
    ]


def later_changes() -> list[Change]:
    """Return the changes of each table: upserts, deletes and new keys, or more flights."""
    changes = []
    for table in TABLES:
        rows = source.read(table.name)
        if not table.primary_key:
            january = rows.filter(pc.equal(rows["month"], 1))
            changes.append(Change(table, WriteKind.APPEND, _replace(january, "year", pc.add(january["year"], _int(1)))))
            continue
        changed, deleted, kept_key = _every(rows, 5, 0), _every(rows, 11, 1), _every(rows, 16, 2)
        changes += [
            Change(table, WriteKind.UPSERT, _altered(table, changed)),
            Change(table, WriteKind.DELETE, deleted),
            Change(table, WriteKind.UPSERT, _under_new_keys(table, kept_key)),
        ]
    return changes


def expected(changes: list[Change]) -> dict[str, pa.Table]:
    """Return the rows that each table holds after the changes, by the table's name and in no order."""
    rows: dict[str, pa.Table] = {}
    for change in changes:
        name, key = change.table.name, list(change.table.primary_key)
        before = rows.get(name, change.rows.slice(0, 0))
        if key:
            before = before.join(change.rows.select(key), keys=key, join_type="left anti").select(
                change.rows.column_names
            )
        rows[name] = before if change.kind is WriteKind.DELETE else pa.concat_tables([before, change.rows])
    return rows


def _every(rows: pa.Table, step: int, first: int) -> pa.Table:
    return rows.take(np.arange(first, rows.num_rows, step))


def _altered(table: ExampleTable, rows: pa.Table) -> pa.Table:
    """Return the rows with a changed column; a column of planes becomes null as well."""
    match table.name:
        case "planes":
            return _replace(
                _replace(rows, "seats", pc.add(rows["seats"], _int(1))), "year", pa.nulls(len(rows), pa.int32())
            )
        case "airports":
            return _replace(rows, "alt", pc.negate(rows["alt"]))
        case "airlines":
            return _replace(rows, "name", pc.binary_join_element_wise(rows["name"], "(renamed)", " "))
        case "weather":
            return _replace(rows, "temp", pc.divide(pc.subtract(rows["temp"], 32.0), 1.8))
    raise ValueError(table.name)


def _under_new_keys(table: ExampleTable, rows: pa.Table) -> pa.Table:
    key = table.primary_key[0]
    return _replace(rows, key, pc.binary_join_element_wise(rows[key], "2014", "-"))


def _replace(rows: pa.Table, name: str, values: pa.ChunkedArray | pa.Array) -> pa.Table:
    index = rows.schema.get_field_index(name)
    return rows.set_column(index, rows.schema.field(index), values)


def _int(value: int) -> pa.Scalar:
    return pa.scalar(value, pa.int32())
