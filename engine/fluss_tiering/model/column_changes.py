"""Changes of a table's columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from fluss_tiering.model.table import Column, DataType


@dataclass(frozen=True, slots=True)
class AddColumn:
    """Adds a nullable column at the end. Rows that are there already have null in it."""

    column: Column


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """Gives a column another name. Its values stay."""

    name: str
    new_name: str


@dataclass(frozen=True, slots=True)
class DropColumn:
    """Drops a column with its values."""

    name: str


@dataclass(frozen=True, slots=True)
class WidenColumn:
    """Gives a column a wider type, which holds all of its values. Whether it may be null stays as it is."""

    name: str
    data_type: DataType


ColumnChange: TypeAlias = AddColumn | RenameColumn | DropColumn | WidenColumn
