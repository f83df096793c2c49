"""What disturbs an ordinary history: writes that are broken off, users of the lake, and faults of databases and S3."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from fluss_tiering.model.table import OFFSET_COLUMN
from fluss_tiering.model.table_options import LAKE_LAYOUT
from torture.faults.writes import FAULTS
from torture.plan import PlannedTable, Step
from torture.world import S3, TWO_SERVERS

ENABLED: Final = "table.datalake.enabled"
_BROKEN_SHARE: Final = 0.08
_RETAINED_SHARE: Final = 0.3
WIDER: Final = {
    "TINYINT": "BIGINT",
    "SMALLINT": "BIGINT",
    "INT": "BIGINT",
    "FLOAT": "DOUBLE",
    "DECIMAL(5, 2)": "DECIMAL(20, 2)",
    "DECIMAL(9, 0)": "DECIMAL(18, 0)",
}


def switched_off(table: PlannedTable) -> PlannedTable:
    """Return a table that is not tiered at first."""
    return replace(table, properties={**table.properties, ENABLED: "false"})


def switch_on(table: PlannedTable) -> Step:
    """Return the step from which on it is."""
    return {"do": "alter", "table": table.name, "set": {ENABLED: "true"}}


def maybe_broken_off(chance: random.Random, step: Step) -> Step:
    """Return a step, which is broken off if it is a write and chance will have it."""
    if step["do"] != "write" or chance.random() > _BROKEN_SHARE:
        return step
    fault = {
        "what": chance.choice(FAULTS),
        "after": chance.choice((0, 1, 1, 2, 5)),
        "ms": chance.choice((0, 1, 5, 20)),
        "rows": chance.choice((1, 1, 3)),
    }
    return {**step, "fault": fault}


def beside_round(chance: random.Random, tables: Sequence[PlannedTable]) -> Step:
    """Return what a user deletes from the lake while rounds run, as a part of their step."""
    if chance.random() > 0.1:
        return {}
    return {"beside": {"table": chance.choice(tables).name, "what": "delete", "seed": chance.randrange(1 << 30)}}


def by_a_user(chance: random.Random, tables: Sequence[PlannedTable]) -> list[Step]:
    """Return what a user does to lake tables between rounds."""
    steps: list[Step] = []
    table = chance.choice(tables)
    if chance.random() < 0.2:
        mode = chance.choice(("copy-on-write", "merge-on-read"))
        steps.append({"do": "delete_rows", "table": table.name, "mode": mode, "seed": chance.randrange(1 << 30)})
    table = chance.choice(tables)
    if chance.random() < 0.15:
        change = _change(chance, table)
        steps.append({"do": "change_schema", "table": table.name, "change": change, "seed": chance.randrange(1 << 30)})
    return steps


def altered_columns(chance: random.Random, tables: Sequence[PlannedTable]) -> list[Step]:
    """Return a change of the columns of a table, with rows and a round behind it, which may be killed."""
    if chance.random() > 0.3:
        return []
    return [alter_columns(chance, chance.choice(tables))]


def alter_columns(chance: random.Random, table: PlannedTable) -> Step:
    """Return the step that changes columns of a table."""
    step: Step = {"do": "alter_columns", "table": table.name, "seed": chance.randrange(1 << 30)}
    if chance.random() < 0.2:
        step["fault"] = {"what": "kill", "when": chance.choice(("before", "after")), "step": "lake"}
    return step


def retained(chance: random.Random, tables: Sequence[PlannedTable]) -> list[Step]:
    """Return a retention, by which old records leave a lake table between rounds."""
    kinds = {each.name: [kind for _, kind in each.columns] for each in tables}
    timed = [
        name
        for name, of_table in kinds.items()
        if any(kind.startswith(("DATE", "TIMESTAMP")) for kind in of_table)
        # Spark opens no lake table with TIME.
        and not any("TIME(" in kind for kind in of_table)
    ]
    if not timed or chance.random() > _RETAINED_SHARE:
        return []
    return [{"do": "retain", "table": chance.choice(timed), "column": chance.randrange(8)}]


def fault_of_parts(chance: random.Random, parts: Sequence[str]) -> Step:
    """Return a fault of what a world has beyond the usual, as a part of the step of rounds."""
    faults: list[dict[str, Any]] = []
    if TWO_SERVERS in parts:
        what = chance.choice(("cut active server", "cut active server", "cut other server", "kill server"))
        faults.append({"what": what, "after": chance.choice((0.1, 0.5, 2)), "seconds": chance.choice((1, 6, 12))})
    if S3 in parts:
        faults.append({"what": "throttled", "share": chance.choice((0.1, 0.3, 0.6))})
    if not faults or chance.random() > 0.5:
        return {}
    return {"fault": chance.choice(faults)}


def _change(chance: random.Random, table: PlannedTable) -> str:
    wider = [(name, WIDER[kind]) for name, text in table.columns if (kind := text.removesuffix(" NOT NULL")) in WIDER]
    if wider and chance.random() < 0.5:
        name, kind = chance.choice(wider)
        return f"ALTER COLUMN {_quoted(name)} TYPE {kind}"
    name, _ = chance.choice(table.columns)
    last = OFFSET_COLUMN if table.properties.get(LAKE_LAYOUT.key) == "legacy" else _quoted(table.columns[-1][0])
    added = f"ADD COLUMN `added {chance.randrange(1000)}` {chance.choice(('STRING', 'STRUCT<a: INT>', 'DOUBLE'))}"
    where = chance.choice(("", " FIRST", f" AFTER {_quoted(name)}"))
    moved = f"ALTER COLUMN {_quoted(name)} " + chance.choice(("FIRST", f"AFTER {last}", "COMMENT 'a note'"))
    return chance.choice((f"{added}{where}", f"{added}{where}", moved))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
