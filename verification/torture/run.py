"""Runs a plan: each step for real, with the model beside it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Final

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from torture.judging.checks import Tally, WrongError
from torture.model import TableModel
from torture.plan import Plan, PlannedTable, Step
from torture.steps import lake_users, rounds, tables, writes
from torture.steps.running import Running
from torture.world import World

_NUMBERS = itertools.count(1)
_STEPS: Final[Mapping[str, Callable[[Running, Step], None]]] = {
    "acquired_again": rounds.acquired_again,
    "alter": tables.alter,
    "alter_columns": tables.alter_columns,
    "change_schema": lake_users.change_schema,
    "cut_log": tables.cut_log,
    "delete_rows": lake_users.delete_rows,
    "drop_partition": tables.drop_partition,
    "lake_user": lake_users.set_property,
    "maintain": lake_users.maintain,
    "retain": lake_users.retain,
    "server": tables.server,
    "snapshot": tables.snapshot,
    "tier": rounds.tier,
    "write": writes.write,
}


def run_plan(world: World, plan: Plan, tally: Tally, *, most: int = 150) -> None:
    """Run all steps of a plan, in a database of its own.

    Args:
        world: Where it runs.
        plan: The plan.
        tally: Where its steps and comparisons are counted.
        most: How many questions judges are asked about a table after a round.

    Raises:
        WrongError: something was not as it must be.
    """
    run = Running(world, plan, tally, most, f"d{next(_NUMBERS)}_{plan.seed}")
    _await_service(world)
    for table in plan.tables:
        _create(run, table)
    for step in plan.steps:
        kind = step["do"]
        if "table" in step and step["table"] not in run.infos:
            continue
        tally.counts[f"steps: {kind}"] += 1
        with tally.timed(f"steps: {kind}"):
            _STEPS[kind](run, step)
            _await_service(world)


def _await_service(world: World) -> None:
    """Wait until a server is active again after what was done to the servers. A caller would try again meanwhile."""
    if not world.servers.serve():
        raise WrongError("no server serves", "none of the servers became the active one")


def _create(run: Running, table: PlannedTable) -> None:
    try:
        run.infos[table.name] = run.world.client.create_table(table.path(run.database), table.descriptor())
    except FlussTieringError as error:
        if error.code is not ErrorCode.INVALID_TABLE:
            raise WrongError("a table cannot be created", error.message) from error
        run.tally.refused[f"table: {error.message[:110]}"] += 1
        return
    run.models[table.name] = TableModel(table)
    run.tally.counts["tables"] += 1
    run.tally.counts["columns"] += len(table.columns)
