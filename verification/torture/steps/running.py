"""What the steps of a running plan share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fluss_tiering.model.table import TableInfo
from torture.judging.checks import Tally
from torture.makers.rows import partition_values
from torture.model import TableModel
from torture.plan import Plan, PlannedTable
from torture.world import World


@dataclass
class Running:
    """A plan that runs.

    Attributes:
        world: Where it runs.
        plan: The plan.
        tally: Where its steps and comparisons are counted.
        most: How many questions judges are asked about a table after a round.
        database: The database of its tables.
        models: What each table must hold, by its name in the plan.
        infos: The tables that could be created, by the same name.
        lake_exists: The names of the tables that have a snapshot in the lake.
        altered: The tables whose columns were changed, as they are now.
        rearranged: The names of the tables whose lake tables have columns in other places, or of other types.
    """

    world: World
    plan: Plan
    tally: Tally
    most: int
    database: str
    models: dict[str, TableModel] = field(default_factory=dict)
    infos: dict[str, TableInfo] = field(default_factory=dict)
    lake_exists: set[str] = field(default_factory=set)
    altered: dict[str, PlannedTable] = field(default_factory=dict)
    rearranged: set[str] = field(default_factory=set)

    def planned(self, name: str) -> PlannedTable:
        """Return a table of the plan, with the columns that it has now."""
        return self.altered.get(name) or next(table for table in self.plan.tables if table.name == name)

    def lake_keys(self, name: str) -> dict[str, Sequence[str]]:
        """Return the columns that the partitions of a lake table are made of, and their values that stand in paths."""
        planned = self.planned(name)
        partitions = (partition_values(planned, number) for number in range(len(planned.partitions)))
        buckets: dict[str, Sequence[str]] = {planned.bucket_key: ()} if planned.bucket_key else {}
        return buckets | dict(zip(planned.partition_keys, zip(*partitions, strict=True), strict=True))

    def path(self, name: str) -> str:
        """Return the path of a table as DATABASE.TABLE."""
        return str(self.infos[name].path)
