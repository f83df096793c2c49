"""Rows of a planned table. A value depends on seed, row and column alone, so that a smaller plan keeps the others."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fluss_tiering.model.data_type import DataType, DataTypeRoot
from torture.plan import PlannedTable, Step
from torture.values import HUGE_CHARACTERS, LONG_BYTES, Value, cut_value, value_of


def rows_of_step(table: PlannedTable, step: Step) -> list[tuple[Value, ...]]:
    """Return the rows that a step writes, or the keys of rows that it deletes (other values are then None)."""
    indices = step.get("keep") or range(step["rows"])
    return [_row(table, step, index) for index in indices]


def partition_values(table: PlannedTable, number: int) -> tuple[str, ...]:
    """Return the values of one of the partitions that rows of the table are in."""
    return (table.partitions[number], "x")[: len(table.partition_keys)]


def _row(table: PlannedTable, step: Step, index: int) -> tuple[Value, ...]:
    place = random.Random(f"{step['seed']}/{index}")
    number = _key_number(step, index, place)
    partition = step.get("partition")
    if partition is None:
        partition = place.randrange(len(table.partitions))
    values = dict(zip(table.partition_keys, partition_values(table, partition), strict=True))
    row = []
    for column in table.typed:
        if column.name in values:
            row.append(values[column.name])
        elif column.name in table.primary_key:
            row.append(_key_value(column.data_type, number, column.name, long=table.long))
        elif column.name in step.get("constant", {}):
            row.append(step["constant"][column.name])
        else:
            chance = random.Random(f"{step['seed']}/{index}/{column.name}")
            row.append(_value(column.data_type, chance, step, table, column.name))
    return tuple(row)


def _value(data_type: DataType, chance: random.Random, step: Step, table: PlannedTable, name: str) -> Value:
    size = step.get("text_bytes")
    if size and data_type.root in {DataTypeRoot.STRING, DataTypeRoot.BYTES}:
        text = chance.randbytes(min(size, 1 << 12) // 2).hex()
        text = (text * (size // len(text) + 1))[:size]
        return text if data_type.root is DataTypeRoot.STRING else text.encode()
    if name in step.get("edges", {}):
        return cut_value(data_type, step["edges"][name], step["length"], chance)
    if step.get("huge") and data_type.root is DataTypeRoot.STRING and chance.random() < 0.1:
        return chance.choice("az") * HUGE_CHARACTERS
    if name == table.bucket_key and not table.primary_key:
        return value_of(data_type, chance)
    return value_of(data_type, chance, long=table.long)


def _key_number(step: Step, index: int, chance: random.Random) -> int:
    if step.get("hot"):
        return 0
    first, count = step.get("keys", (0, 50))
    if step.get("skew") and chance.random() < 0.95:
        return int(first)
    return int(first) + (index % count if step.get("distinct") else chance.randrange(count))


def _key_value(data_type: DataType, number: int, name: str, *, long: bool) -> Any:
    chance = random.Random(f"key/{number}/{name}")
    root = data_type.root
    if number % 3 == 0 or root not in {DataTypeRoot.INT, DataTypeRoot.BIGINT, DataTypeRoot.STRING}:
        if long and number % 5 == 0 and root in {DataTypeRoot.STRING, DataTypeRoot.BYTES}:
            text = f"{chance.choice(('', 'm', 'zz'))}{'x' * (LONG_BYTES + chance.choice((-8, 0, 900)))}{number}"
            return text if root is DataTypeRoot.STRING else text.encode()
        return value_of(_required(data_type), chance)
    return number if root is not DataTypeRoot.STRING else f"k{number:08d}"


def _required(data_type: DataType) -> DataType:
    return replace(data_type, nullable=False)


def columns_of(table: PlannedTable, names: Sequence[str]) -> list[int]:
    """Return the positions of columns."""
    return [[name for name, _ in table.columns].index(name) for name in names]
