"""The plan of a run: tables and steps as plain data, so that a run is repeated, made smaller, and kept as a file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from fluss_tiering.model.table import Column, DataType, TableDescriptor, TablePath

Step = dict[str, Any]
"""A step: `do` says what, and the other items how. `run.py` has a function for each kind."""


@dataclass(frozen=True)
class PlannedTable:
    """A table that a plan makes.

    Attributes:
        name: Its name; a run puts a database of its own before it.
        columns: The name and the type of each column.
        primary_key: The names of the key columns; empty for a log table.
        bucket_key: The name of the column that chooses the bucket; None for none.
        partition_keys: The names of the partition columns.
        partitions: The values of the first partition column. Those of a second one are `x`.
        num_buckets: The number of buckets.
        properties: Its options.
        long: Whether its texts may be longer than Parquet's bounds.
    """

    name: str
    columns: Sequence[Sequence[str]]
    primary_key: Sequence[str] = ()
    bucket_key: str | None = None
    partition_keys: Sequence[str] = ()
    num_buckets: int = 1
    properties: Mapping[str, str] = field(default_factory=dict)
    long: bool = False
    partitions: Sequence[str] = ("p0", "p1", "p2", "p3")

    @property
    def typed(self) -> tuple[Column, ...]:
        """The columns with their types."""
        return tuple(Column(name, DataType.parse(text)) for name, text in self.columns)

    def path(self, database: str) -> TablePath:
        return TablePath(database, self.name)

    def descriptor(self) -> TableDescriptor:
        return TableDescriptor(
            self.typed,
            primary_key=tuple(self.primary_key),
            bucket_keys=() if self.bucket_key is None else (self.bucket_key,),
            num_buckets=self.num_buckets,
            properties=self.properties,
            partition_keys=tuple(self.partition_keys),
        )


@dataclass(frozen=True)
class Plan:
    """What a run does.

    Attributes:
        seed: The seed that made it.
        storage: "embedded" or "cluster".
        tables: The tables.
        steps: The steps in order.
        parts: What the world of the plan has beyond the usual, as `world.PARTS` names it.
    """

    seed: int
    storage: str
    tables: Sequence[PlannedTable]
    steps: Sequence[Step]
    parts: Sequence[str] = ()

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1, ensure_ascii=True)

    def save(self, path: Path) -> None:
        path.write_text(self.to_json())

    @classmethod
    def load(cls, path: Path) -> Self:
        plan = json.loads(path.read_text())
        return cls(**{**plan, "tables": tuple(PlannedTable(**each) for each in plan["tables"])})
