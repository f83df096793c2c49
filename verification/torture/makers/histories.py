"""Plans that a seed makes up: tables, what happens to them, and the faults on the way."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from fluss_tiering.model.table_options import LAKE_LAYOUT, LAKE_PARTITION_BY, LAKE_SORT_BY
from torture.faults.rounds import METHODS
from torture.makers.cases import CASES, ORDER
from torture.makers.disturbances import (
    ENABLED,
    altered_columns,
    beside_round,
    by_a_user,
    fault_of_parts,
    maybe_broken_off,
    retained,
    switch_on,
    switched_off,
)
from torture.makers.tables import DELETE_FILES, make_table
from torture.plan import Plan, PlannedTable, Step

_OF_LAYOUT: Final = frozenset({LAKE_LAYOUT.key, LAKE_PARTITION_BY.key, LAKE_SORT_BY.key})
_OF_PROCESSES: Final = ("disk full", "kill worker", "stop worker", "kill server", "stop server")
_OF_CLUSTERS: Final = ("kill coordinator", "kill tablet server", "stop tablet server")
_OF_CALLS: Final = ("lost request", "lost answer", "late answer")
_LAKE_PROPERTIES: Final = (
    ("write.metadata.metrics.default", "full"),
    ("write.metadata.metrics.default", "nonsense"),
    ("write.metadata.metrics.column.c0", "truncate(0)"),
    ("write.parquet.compression-codec", "gzip"),
    ("write.target-file-size-bytes", "1"),
    ("write.object-storage.enabled", "true"),
    ("write.metadata.delete-after-commit.enabled", "true"),
    ("write.distribution-mode", "none"),
    ("format-version", "3"),
)
"""What a user sets in the lake."""
_LATE_SHARE: Final = 0.1
_CASE_EVERY: Final = 2
"""Every so many seeds a plan is of a kind of its own: a run comes to each of them soon."""
_FAULTS: Final = [
    {"what": what, "when": when, "step": step}
    for what in ("kill", "stop")
    for when in ("before", "after")
    for step in ("prepare", "lake", "register")
]


def make_plan(seed: int, storage: str, parts: Sequence[str] = ()) -> Plan:
    """Return the plan of a seed: a case of its own kind, or ordinary tables.

    Args:
        seed: The seed.
        storage: "embedded" or "cluster".
        parts: What the world has beyond the usual, as `world.PARTS` names it.
    """
    chance = random.Random(f"plan/{seed}")
    if seed % _CASE_EVERY == 0:
        return make_case(ORDER[(seed // _CASE_EVERY - 1) % len(ORDER)], seed, storage, parts)
    tables = [make_table(chance, f"t{number}") for number in range(chance.choice((2, 3, 4)))]
    more = random.Random(f"more/{seed}")
    of_columns = random.Random(f"columns/{seed}")
    late = {table.name for table in tables if more.random() < _LATE_SHARE}
    tables = [switched_off(table) if table.name in late else table for table in tables]
    # A fault costs a start of Spark: not every plan has one.
    faulty = chance.random() < 0.35
    steps: list[Step] = []
    rounds = chance.choice((1, 2, 3))
    for number in range(rounds):
        for table in tables:
            steps += _changes(chance, table, number)
        if number == 0:
            steps += [switch_on(table) for table in tables if table.name in late]
        steps.append(_round(chance, tables, storage, fault=faulty and chance.random() < 0.5))
        steps[-1] |= beside_round(more, tables) | fault_of_parts(more, parts)
        if chance.random() < 0.15:
            steps.append({"do": "server", "what": chance.choice(("kill", "restart"))})
        if chance.random() < 0.15:
            key, value = chance.choice(_LAKE_PROPERTIES)
            steps.append({"do": "lake_user", "table": chance.choice(tables).name, "key": key, "value": value})
        if chance.random() < 0.2:
            steps.append(
                {
                    "do": "maintain",
                    "table": chance.choice(tables).name,
                    "what": chance.choice(("compact", "expire", "clean")),
                }
            )
        steps += by_a_user(more, tables)
        if storage == "embedded":
            steps += altered_columns(of_columns, tables)
        steps += retained(random.Random(f"retained/{seed}/{number}"), tables)
    plan = Plan(seed, storage, tables, [maybe_broken_off(more, step) for step in steps], parts)
    return plan if storage == "embedded" else _as_clusters_take_it(plan)


def _as_clusters_take_it(plan: Plan) -> Plan:
    """Set the way rounds delete as a property of the lake table, since the option is not one of Fluss.

    A cluster creates the lake table itself, so that options of its layout are left out.
    """
    tables = [replace(table, properties=_below_iceberg(table.properties)) for table in plan.tables]
    steps = [{**step, "set": _below_iceberg(step["set"])} if step["do"] == "alter" else step for step in plan.steps]
    return replace(plan, tables=tables, steps=steps)


def _below_iceberg(properties: Mapping[str, str]) -> dict[str, str]:
    known = {key: value for key, value in properties.items() if key not in _OF_LAYOUT}
    return {f"fluss.{key}" if key == DELETE_FILES else key: value for key, value in known.items()}


def make_case(name: str, seed: int, storage: str, parts: Sequence[str] = ()) -> Plan:
    """Return the plan of a seed for a case of this kind."""
    return replace(CASES[name](random.Random(f"case/{seed}"), seed, storage), parts=parts)


def _round(chance: random.Random, tables: list[PlannedTable], storage: str, *, fault: bool) -> Step:
    step: Step = {"do": "tier", "tables": [table.name for table in tables], "seed": chance.randrange(1 << 30)}
    if chance.random() < 0.2:
        step["options"] = chance.choice(({"max_round_bytes": 3000}, {"worker_buffer_bytes": 1 << 20}))
    if random.Random(f"pieces/{step['seed']}").random() < 0.3:
        # Buckets with several pieces, as large ones have them.
        step["options"] = {**step.get("options", {}), "change_piece_bytes": 300}
    if chance.random() < 0.15:
        step["beside"] = {"table": chance.choice(tables).name, "what": chance.choice(("compact", "expire", "clean"))}
    if fault:
        step["fault"] = _fault(chance, storage)
    return step


def _fault(chance: random.Random, storage: str) -> Step:
    of_processes: list[Step] = [*_FAULTS, *({"what": what} for what in _OF_PROCESSES)]
    of_processes += [{"what": "clock step", "ms": ms} for ms in (130_000, -3_600_000, 86_400_000)]
    if storage == "cluster":
        of_processes += [{"what": what} for what in _OF_CLUSTERS] * 3
    of_calls: Step = {
        "what": chance.choice(_OF_CALLS),
        "method": chance.choice(METHODS),
        "times": chance.choice((1, 1, 2, 4)),
    }
    # A fault of calls costs no new start of Spark.
    return of_calls if chance.random() < 0.6 else chance.choice(of_processes)


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
        by_rows = LAKE_PARTITION_BY.key in table.properties
        if table.primary_key and not by_rows and steps[-1]["set"]["table.datalake.freshness"] != "1h":
            way = "position" if table.properties.get(DELETE_FILES) != "position" else "equality"
            steps.append({"do": "alter", "table": table.name, "set": {DELETE_FILES: way}})
    if chance.random() < 0.05:
        for enabled in ("false", "true"):
            steps.append({"do": "alter", "table": table.name, "set": {ENABLED: enabled}})
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
