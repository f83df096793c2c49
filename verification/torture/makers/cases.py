"""Plans of one kind each, for what ordinary tables do not come to: large values, many buckets, late tiering."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from fluss_tiering.model.table_options import LAKE_COMMIT_BRANCH
from torture.driver.row_groups import ROW_GROUP_ROWS
from torture.makers.disturbances import alter_columns
from torture.makers.tables import make_table, nested_row
from torture.plan import Plan, PlannedTable, Step

_ENABLED: Final = "table.datalake.enabled"
_OPTIONS: Final = {_ENABLED: "true", "table.datalake.freshness": "1s"}
_EDGES: Final = ("\x7f", "\u07ff", "\ud7ff", "\uffff", "\U0010ffff")
"""The last code points of each length in UTF-8, and the last one before the surrogates."""
_KEY: Final = ["id", "BIGINT NOT NULL"]


def _large_values(chance: random.Random, seed: int, storage: str) -> Plan:
    """A worker's memory has a bound, however large the values are and however well they compress."""
    keyed = chance.random() < 0.9
    table = PlannedTable(
        "large", [_KEY, ["text", "STRING"]], ["id"] if keyed else [], "id" if keyed else None, properties=_OPTIONS
    )
    small, large = (
        _write(table, chance, rows, keys=(first, rows), distinct=True, **others)
        for first, rows, others in ((0, 2000, {}), (2000, chance.choice((450, 500)), {"text_bytes": 1 << 20}))
    )
    steps = [small, large]
    if keyed and chance.random() < 0.5:
        steps.append({"do": "snapshot", "table": table.name})
    options = {"worker_buffer_bytes": 1 << 20} if chance.random() < 0.5 else {}
    return Plan(seed, storage, [table], [*steps, _tier(chance, table, light=True, options=options)])


def _many_buckets(chance: random.Random, seed: int, storage: str, *, keyed: bool = False) -> Plan:
    """What a snapshot says about offsets stays small with many buckets, and with partitions that come and go."""
    table = PlannedTable(
        "buckets",
        [["id", "BIGINT NOT NULL" if keyed else "BYTES NOT NULL"], ["p", "STRING NOT NULL"]],
        ["id", "p"] if keyed else [],
        "id",
        ["p"],
        num_buckets=1024,
        properties=_OPTIONS,
    )
    steps: list[Step] = []
    for partition in range(2):
        write = _write(table, chance, 6000, keys=(0, 6000), distinct=True, partition=partition)
        steps += [write, _tier(chance, table, light=True), {"do": "drop_partition", "table": "buckets", "partition": 0}]
    return Plan(seed, storage, [table], steps)


def _late(chance: random.Random, seed: int, storage: str) -> Plan:
    """Tiering is switched on when the log no longer begins at 0."""
    keyed = chance.random() < 0.3
    table = PlannedTable(
        "late",
        [_KEY, ["text", "STRING"]],
        ["id"] if keyed else [],
        "id" if keyed or chance.random() < 0.5 else None,
        properties={**_OPTIONS, _ENABLED: "false"},
    )
    steps = [_write(table, chance, chance.choice((1, 5, 20))) for _ in range(3)]
    if keyed:
        steps.insert(2, {"do": "snapshot", "table": table.name})
    if chance.random() < 0.9:
        steps.append({"do": "cut_log", "table": table.name})
    steps.append({"do": "alter", "table": table.name, "set": {_ENABLED: "true"}})
    more = [_tier(chance, table), _write(table, chance, 3), _tier(chance, table)]
    return Plan(seed, storage, [table], [*steps, *more])


def _hot_key(chance: random.Random, seed: int, storage: str) -> Plan:
    """One key is changed again and again."""
    table = PlannedTable("hot", [_KEY, ["n", "INT"]], ["id"], "id", num_buckets=2, properties=_OPTIONS)
    changes = _write(table, chance, chance.choice((5_000, 20_000, 100_000)), hot=True)
    steps = [_write(table, chance, 50), _tier(chance, table), changes, _tier(chance, table)]
    if chance.random() < 0.5:
        steps += [_write(table, chance, 1, kind="delete", hot=True), _tier(chance, table)]
    return Plan(seed, storage, [table], steps)


def _huge_texts(chance: random.Random, seed: int, storage: str) -> Plan:
    """Texts of 8 MB between ordinary ones, which make row groups of their own."""
    keyed = chance.random() < 0.5
    table = PlannedTable(
        "huge",
        [_KEY, ["text", "STRING"], ["n", "INT"]],
        ["id"] if keyed else [],
        "id" if keyed else None,
        properties=_OPTIONS,
    )
    steps = [_write(table, chance, 60, huge=True, keys=(0, 60), distinct=True), _tier(chance, table)]
    return Plan(seed, storage, [table], [*steps, _write(table, chance, 10, keys=(0, 60)), _tier(chance, table)])


def _long_texts(chance: random.Random, seed: int, storage: str) -> Plan:
    """Texts and bytes beyond what Parquet keeps bounds of, in keys and others, in files of several row groups.

    The files are small: among many values others are smaller and larger than the long ones.
    """
    kind = chance.choice(("STRING", "STRING", "BYTES"))
    keyed, log = (
        PlannedTable(
            name,
            [["k", f"{kind} NOT NULL"], ["a", "STRING"], ["b", "BYTES"]],
            ["k"] if name == "keyed" else [],
            "k" if name == "keyed" else None,
            properties={**_OPTIONS, ROW_GROUP_ROWS: str(chance.choice((1, 2, 5)))},
            long=True,
        )
        for name in ("keyed", "log")
    )
    rows = chance.choice((6, 10, 20))
    steps = [_write(table, chance, rows, keys=(0, rows), distinct=True) for table in (keyed, log)]
    if chance.random() < 0.5:
        steps.append({"do": "snapshot", "table": keyed.name})
    steps.append(_tier(chance, keyed, log))
    for _ in range(2):
        changed = chance.choice(("upsert", "delete"))
        steps.append(_write(keyed, chance, rows // 2 + 1, keys=(0, rows), kind=changed))
        steps += [_write(log, chance, rows // 2), _tier(chance, keyed, log)]
    return Plan(seed, storage, [keyed, log], steps)


def _cut_texts(chance: random.Random, seed: int, storage: str) -> Plan:
    """Texts and bytes that bounds cut at each edge of Unicode, which ends some columns' texts and no others'."""
    length = chance.choice((1, 2, 16, 16))
    names = [f"c{number}" for number in range(3 * len(_EDGES))]
    edges = {name: _EDGES[number % len(_EDGES)] for number, name in enumerate(names)}
    columns = [[name, "BYTES" if number % 3 == 2 else "STRING"] for number, name in enumerate(names)]
    keyed = chance.random() < 0.5
    properties = {**_OPTIONS, ROW_GROUP_ROWS: str(chance.choice((1, 2, 20)))}
    if length < 16:
        properties["iceberg.write.metadata.metrics.default"] = f"truncate({length})"
    table = PlannedTable(
        "cut", [_KEY, *columns], ["id"] if keyed else [], "id" if keyed else None, properties=properties
    )
    steps: list[Step] = []
    for rows in (1, 2, 4):
        steps += [_write(table, chance, rows, edges=edges, length=length), _tier(chance, table)]
    return Plan(seed, storage, [table], steps)


def _many_keyed_buckets(chance: random.Random, seed: int, storage: str) -> Plan:
    """A first round takes the KV snapshots of a thousand buckets."""
    return _many_buckets(chance, seed, storage, keyed=True)


def _nested(chance: random.Random, seed: int, storage: str) -> Plan:
    """Rows that may be null with fields that may not, at each depth, from a log, from a snapshot, and as changes."""
    kinds = [nested_row(chance) for _ in range(3)]
    columns = [_KEY, *([f"c{number}", kind] for number, kind in enumerate(kinds))]
    columns += [["a", f"ARRAY<{kinds[0]}>"], ["m", f"MAP<INT NOT NULL, {kinds[1]}>"]]
    table = PlannedTable("nested", columns, ["id"], "id", properties=_OPTIONS)
    steps = [_write(table, chance, 20, keys=(0, 20), distinct=True)]
    if chance.random() < 0.5:
        steps.append({"do": "snapshot", "table": table.name})
    steps += [_tier(chance, table), _write(table, chance, 10, keys=(0, 30)), _tier(chance, table)]
    return Plan(seed, storage, [table], steps)


def _altered_columns(chance: random.Random, seed: int, storage: str) -> Plan:
    """Columns are changed again and again, with rows between, and rounds that are killed on the way."""
    tables = [make_table(chance, f"t{number}") for number in range(3)]
    steps: list[Step] = [_write(table, chance, 20, keys=(0, 60)) for table in tables]
    for table in tables:
        if table.primary_key and chance.random() < 0.5:
            steps.append({"do": "snapshot", "table": table.name})
    steps.append(_tier(chance, *tables))
    if storage == "embedded":
        for _ in range(8):
            table = chance.choice(tables)
            steps += [_write(table, chance, 20, keys=(0, 60)), alter_columns(chance, table)]
            if chance.random() < 0.3:
                steps.append({"do": "maintain", "table": table.name, "what": chance.choice(("compact", "expire"))})
    return Plan(seed, storage, tables, steps)


def _published(chance: random.Random, seed: int, storage: str) -> Plan:
    """Rounds commit to a branch, which is maintained, and main moves forward now and then."""
    branch = {(LAKE_COMMIT_BRANCH.key if storage == "embedded" else f"fluss.{LAKE_COMMIT_BRANCH.key}"): "audit"}
    made = (make_table(chance, f"t{number}", storage=storage) for number in range(3))
    tables = [replace(table, properties={**table.properties, **branch}) for table in made]
    steps: list[Step] = []
    for number in range(5):
        steps += [_write(table, chance, 20, keys=(0, 60)) for table in tables]
        steps.append(_tier(chance, *tables, hold=number < 4 and chance.random() < 0.5))
        if chance.random() < 0.6:
            what = chance.choice(("compact", "compact", "expire"))
            steps.append({"do": "maintain", "table": chance.choice(tables).name, "what": what})
    return Plan(seed, storage, tables, steps)


def _siblings(chance: random.Random, seed: int, storage: str) -> Plan:
    """The acquire task of a lease runs again while a round of it goes on, as if a sibling had been cleared."""
    table = PlannedTable("sibling", [_KEY, ["n", "INT"]], properties=_OPTIONS)
    steps: list[Step] = [_write(table, chance, 5), {"do": "acquired_again", "table": table.name}]
    return Plan(seed, storage, [table], [*steps, _tier(chance, table)])


def _write(table: PlannedTable, chance: random.Random, rows: int, **others: object) -> Step:
    keyed = bool(table.primary_key)
    step: Step = {"do": "write", "table": table.name, "rows": rows, "seed": chance.randrange(1 << 30), **others}
    kind = step.get("kind", "upsert") if keyed else "append"
    return {**step, "kind": kind}


def _tier(chance: random.Random, *tables: PlannedTable, **others: object) -> Step:
    return {"do": "tier", "tables": [table.name for table in tables], "seed": chance.randrange(1 << 30), **others}


CASES: Final[Mapping[str, Callable[[random.Random, int, str], Plan]]] = {
    "altered columns": _altered_columns,
    "cut texts": _cut_texts,
    "hot key": _hot_key,
    "huge texts": _huge_texts,
    "large values": _large_values,
    "late": _late,
    "long texts": _long_texts,
    "many buckets": _many_buckets,
    "many keyed buckets": _many_keyed_buckets,
    "nested": _nested,
    "published": _published,
    "siblings": _siblings,
}
"""The kinds, by their names."""

ORDER: Final = (
    "long texts",
    "late",
    "cut texts",
    "nested",
    "large values",
    "many buckets",
    "hot key",
    "long texts",
    "late",
    "huge texts",
    "siblings",
    "published",
    "altered columns",
)
"""The kinds in the order in which seeds come to them, the cheap ones twice."""
