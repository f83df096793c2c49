"""Plans that a seed makes up: tables, what happens to them, and the faults on the way."""

from __future__ import annotations

import random
from typing import Final

from torture.makers.tables import make_table
from torture.plan import Plan, PlannedTable, Step

_FAULTS: Final = [
    {"what": what, "when": when, "step": step}
    for what in ("kill", "stop")
    for when in ("before", "after")
    for step in ("prepare", "lake", "register")
]


def make_plan(seed: int, storage: str) -> Plan:
    """Return the plan of a seed."""
    chance = random.Random(f"plan/{seed}")
    tables = [make_table(chance, f"t{number}") for number in range(chance.choice((2, 3, 4)))]
    # A fault costs a start of Spark: not every plan has one.
    faulty = chance.random() < 0.25
    steps: list[Step] = []
    rounds = chance.choice((1, 2, 3))
    for number in range(rounds):
        for table in tables:
            steps += _changes(chance, table, number)
        steps.append(_round(chance, tables, fault=faulty and chance.random() < 0.5))
        if chance.random() < 0.15:
            steps.append({"do": "server", "what": chance.choice(("kill", "restart"))})
        if chance.random() < 0.2:
            steps.append(
                {"do": "maintain", "table": chance.choice(tables).name, "what": chance.choice(("compact", "expire"))}
            )
    return Plan(seed, storage, tables, steps)


def _round(chance: random.Random, tables: list[PlannedTable], *, fault: bool) -> Step:
    step: Step = {"do": "tier", "tables": [table.name for table in tables], "seed": chance.randrange(1 << 30)}
    if fault:
        step["fault"] = chance.choice([*_FAULTS, {"what": "kill worker"}, {"what": "kill server"}])
    return step


def _changes(chance: random.Random, table: PlannedTable, number: int) -> list[Step]:
    steps: list[Step] = []
    for _ in range(chance.choice((0, 1, 1, 2))):
        steps.append(_write(chance, table, number))
    if table.partition_keys and number and chance.random() < 0.4:
        steps.append({"do": "drop_partition", "table": table.name, "partition": chance.randrange(4)})
    if table.primary_key and chance.random() < (0.7 if number == 0 else 0.2):
        steps.append({"do": "snapshot", "table": table.name})
        if chance.random() < 0.5:
            steps.append(_write(chance, table, number))
    if chance.random() < 0.08:
        steps.append(
            {"do": "alter", "table": table.name, "set": {"table.datalake.freshness": chance.choice(("1s", "2s", "1h"))}}
        )
    return steps


def _write(chance: random.Random, table: PlannedTable, number: int) -> Step:
    wide = len(table.columns) > 50
    rows = chance.choice((1, 2, 5, 20) if wide else (1, 2, 5, 20, 40, 120))
    step: Step = {"do": "write", "table": table.name, "kind": "append", "rows": rows, "seed": chance.randrange(1 << 30)}
    if table.primary_key:
        step["kind"] = chance.choice(("upsert", "upsert", "upsert", "delete") if number else ("upsert",))
        step["keys"] = [chance.choice((0, 0, 20, 60)), chance.choice((1, 5, 60, 200))]
        if chance.random() < 0.1:
            step["hot"] = True
        if chance.random() < 0.1:
            step["skew"] = True
    return step
