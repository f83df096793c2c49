"""Makes a plan that found something smaller, as long as a run of it finds the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from torture.plan import Plan, PlannedTable, Step

_KEPT_PROPERTIES: Final = ("table.datalake.enabled", "table.datalake.freshness")


def shrink(plan: Plan, finds_it: Callable[[Plan], bool], seconds: float) -> Plan:
    """Return a smaller plan that finds the same, or the plan itself.

    Args:
        plan: The plan.
        finds_it: Runs a plan and returns whether it finds the same.
        seconds: How long plans are tried.
    """
    deadline = time.monotonic() + seconds
    smaller = True
    while smaller:
        smaller = False
        for tried in _smaller(plan):
            if time.monotonic() > deadline:
                return plan
            if finds_it(tried):
                plan, smaller = tried, True
                break
    return plan


def _smaller(plan: Plan) -> Iterator[Plan]:
    """Yield plans that are smaller in one place, the much smaller ones first."""
    for table in plan.tables if len(plan.tables) > 1 else ():
        yield _without_table(plan, table)
    for size in _halves(len(plan.steps)):
        for start in range(0, len(plan.steps), size):
            yield replace(plan, steps=[*plan.steps[:start], *plan.steps[start + size :]])
    for number, step in enumerate(plan.steps):
        if "fault" in step:
            yield _with_step(plan, number, {key: value for key, value in step.items() if key != "fault"})
    for table in plan.tables:
        yield from (_with_table(plan, table, other) for other in _smaller_tables(table))
    for number, step in enumerate(plan.steps):
        if step["do"] == "write":
            rows = step.get("keep") or list(range(step["rows"]))
            for size in _halves(len(rows)) if len(rows) <= 4096 else ():
                for start in range(0, len(rows), size):
                    kept = [*rows[:start], *rows[start + size :]]
                    if kept:
                        yield _with_step(plan, number, {**step, "keep": kept})


def _smaller_tables(table: PlannedTable) -> Iterator[PlannedTable]:
    needed = {*table.primary_key, *table.partition_keys, table.bucket_key}
    free = [number for number, (name, _) in enumerate(table.columns) if name not in needed]
    for size in _halves(len(free)):
        for start in range(0, len(free), size):
            without = set(free[start : start + size])
            columns = [column for number, column in enumerate(table.columns) if number not in without]
            if columns:
                yield replace(table, columns=columns)
    if table.num_buckets > 1:
        yield replace(table, num_buckets=1)
    for key in table.properties:
        if key not in _KEPT_PROPERTIES:
            yield replace(table, properties={each: value for each, value in table.properties.items() if each != key})


def _halves(count: int) -> Iterator[int]:
    """Yield sizes of parts: a half, a quarter, and so on, down to one."""
    size = (count + 1) // 2
    while size:
        yield size
        size = 0 if size == 1 else (size + 1) // 2


def _without_table(plan: Plan, table: PlannedTable) -> Plan:
    steps: list[Step] = []
    for step in plan.steps:
        if step.get("table") == table.name:
            continue
        if "tables" in step:
            tables = [name for name in step["tables"] if name != table.name]
            if not tables:
                continue
            step = {**step, "tables": tables}  # noqa: PLW2901 - the step of the smaller plan
        steps.append(step)
    return replace(plan, tables=[each for each in plan.tables if each is not table], steps=steps)


def _with_table(plan: Plan, table: PlannedTable, other: PlannedTable) -> Plan:
    return replace(plan, tables=[other if each is table else each for each in plan.tables])


def _with_step(plan: Plan, number: int, step: dict[str, Any]) -> Plan:
    return replace(plan, steps=[*plan.steps[:number], step, *plan.steps[number + 1 :]])
