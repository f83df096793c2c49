"""Changes of the columns of a table of the embedded storage, which depend on the seed and the present columns alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from fluss_tiering.model.column_changes import AddColumn, ColumnChange, DropColumn, RenameColumn, WidenColumn
from fluss_tiering.model.table import Column, DataType
from torture.makers.disturbances import WIDER
from torture.makers.tables import new_type
from torture.plan import PlannedTable

_NEW_NAMES = ("new", "a new one", "Neu", "新")


def changed_columns(
    table: PlannedTable, seed: int
) -> tuple[Sequence[ColumnChange], PlannedTable, Sequence[int | None]]:
    """Return changes of columns that belong to no key, and the table after them.

    No column gets the name of one that was dropped: ClickHouse leaves out rows of older files by `IS NULL` then. A name
    with a dot stays: PyIceberg takes it for a path in older files, whatever the column is called now.

    Returns:
        The changes, the table, and for each of its columns the place before; None for a column that is new.
    """
    chance = random.Random(f"columns/{seed}")
    keys = {*table.primary_key, *table.partition_keys, table.bucket_key}
    columns: list[tuple[str, str]] = [(name, kind) for name, kind in table.columns]
    places: list[int | None] = list(range(len(columns)))
    changes: list[ColumnChange] = []
    for number in range(chance.choice((1, 1, 2, 4))):
        free = [place for place, (name, _) in enumerate(columns) if name not in keys]
        what = chance.choice(("add", "rename", "drop", "widen")) if free else "add"
        chosen = chance.choice(free) if free else 0
        name, kind = columns[chosen] if columns else ("", "")
        new = f"{chance.choice(_NEW_NAMES)} {seed % 1000} {number}"
        required = " NOT NULL" if kind.endswith(" NOT NULL") else ""
        wider = WIDER.get(kind.removesuffix(" NOT NULL"))
        if what == "widen" and wider is not None:
            columns[chosen] = (name, wider + required)
            changes.append(WidenColumn(name, DataType.parse(wider + required)))
        elif what == "rename" and "." not in name:
            columns[chosen] = (new, kind)
            changes.append(RenameColumn(name, new))
        elif what == "drop" and len(columns) > 1:
            del columns[chosen], places[chosen]
            changes.append(DropColumn(name))
        else:
            added = new_type(chance).removesuffix(" NOT NULL")
            columns.append((new, added))
            places.append(None)
            changes.append(AddColumn(Column(new, DataType.parse(added))))
    return changes, replace(table, columns=columns), places
