"""Tables with merge engines and numbered columns: the lake has the rows that Fluss makes of a history of writes.

Fluss's own Java client and our `put` write in turn. The judges are a plain model of each engine, the changelog and the
rows as the Java client reads them, Spark's reading of the lake, and `verify`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from refusals import refused
from spark_support import Tiering, command

from engine_support import new_path
from fluss_java_client import FlussJavaClient, JavaClientError
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.table import TableInfo, WriteKind
from fluss_tiering.model.tiering import TieringState

Row = list[Any]
Rows = dict[int, Row]
TIERED = {"table.datalake.enabled": "true", "table.datalake.freshness": "1s"}


@dataclass(frozen=True)
class Write:
    """Rows that are upserted or deleted in one call, which may name a key more than once.

    Attributes:
        rows: The rows, of which a delete uses only the key.
        delete: Whether they are deleted.
        columns: The indexes of the columns of a partial update; None for all.
    """

    rows: Sequence[Row]
    delete: bool = False
    columns: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Engine:
    """A kind of table. The first column is the key.

    Attributes:
        columns: Name -> type.
        merge: What a key has after an upsert of columns, given what it had (None for nothing).
        options: The options of the table.
        aggregates: The aggregation functions of columns.
        partial: Whether the table takes partial updates.
        deletes: Whether deletes remove rows, or are ignored.
    """

    columns: Mapping[str, str]
    merge: Callable[[Row | None, Row, Sequence[int]], Row]
    options: Mapping[str, str] = field(default_factory=dict)
    aggregates: Mapping[str, str] = field(default_factory=dict)
    partial: bool = False
    deletes: bool = False

    def applied(self, rows: Rows, write: Write) -> Rows:
        """Return the rows after a write."""
        after = dict(rows)
        places = range(len(self.columns)) if write.columns is None else write.columns
        for row in write.rows:
            if not write.delete:
                after[row[0]] = self.merge(after.get(row[0]), row, places)
            elif self.deletes:
                after.pop(row[0], None)
        return after


def updated(before: Row | None, row: Row, places: Sequence[int]) -> Row:
    old = [None] * len(row) if before is None else before
    return [row[place] if place in places else old[place] for place in range(len(row))]


def first(before: Row | None, row: Row, places: Sequence[int]) -> Row:
    return updated(None, row, places) if before is None else before


def newest(before: Row | None, row: Row, places: Sequence[int]) -> Row:
    """A null is older than any version."""
    version = 2
    if before is not None and before[version] is not None and (row[version] is None or row[version] < before[version]):
        return before
    return updated(before, row, places)


def _both(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda old, new: new if old is None else old if new is None else function(old, new)


AGGREGATES: Mapping[str, Callable[[Any, Any], Any]] = {
    "sum": _both(lambda old, new: old + new),
    "max": _both(max),
    "min": _both(min),
    "last_value": lambda _, new: new,
    "last_value_ignore_nulls": lambda old, new: old if new is None else new,
    "first_value": lambda old, new: new if old is None else old,
    "first_value_ignore_nulls": lambda old, new: new if old is None else old,
    "listagg": _both(lambda old, new: f"{old},{new}"),
    "bool_or": _both(lambda old, new: old or new),
}
AGGREGATED = {
    "id": "BIGINT NOT NULL",
    "sum": "BIGINT",
    "max": "INT",
    "min": "DOUBLE",
    "last_value": "STRING",
    "last_value_ignore_nulls": "STRING",
    "first_value": "STRING",
    "first_value_ignore_nulls": "STRING",
    "listagg": "STRING",
    "bool_or": "BOOLEAN",
}


def aggregated(before: Row | None, row: Row, places: Sequence[int]) -> Row:
    if before is None:
        return updated(None, row, places)
    return [
        before[place] if place not in places or name == "id" else AGGREGATES[name](before[place], row[place])
        for place, name in enumerate(AGGREGATED)
    ]


PLAIN = {"id": "BIGINT NOT NULL", "name": "STRING", "version": "BIGINT", "amount": "INT"}
ENGINES = {
    "none": Engine(PLAIN, updated, partial=True, deletes=True),
    "first_row": Engine(PLAIN, first, {"table.merge-engine": "first_row"}),
    "versioned": Engine(
        PLAIN, newest, {"table.merge-engine": "versioned", "table.merge-engine.versioned.ver-column": "version"}
    ),
    "aggregation": Engine(
        AGGREGATED,
        aggregated,
        {"table.merge-engine": "aggregation"},
        {name: name for name in AGGREGATED if name != "id"},
        partial=True,
    ),
    "aggregation with deletes": Engine(
        AGGREGATED,
        aggregated,
        {"table.merge-engine": "aggregation", "table.delete.behavior": "allow"},
        {name: name for name in AGGREGATED if name != "id"},
        partial=True,
        deletes=True,
    ),
}


def history(engine: Engine, seed: int, writes: int) -> list[Write]:
    """Make up writes to few keys, with nulls, keys that are twice in a write, and writes that change nothing."""
    chance = random.Random(seed)

    def value(data_type: str) -> Any:
        if chance.random() < 0.25:
            return None
        match data_type:
            case "STRING":
                return chance.choice(["", "a", "schön", "x" * 40])
            case "BOOLEAN":
                return chance.random() < 0.5
            case "DOUBLE":
                return chance.randrange(-8, 8) / 4
            case _:
                return chance.randrange(-5, 5)

    def row() -> Row:
        return [chance.randrange(12), *(value(each) for each in list(engine.columns.values())[1:])]

    made: list[Write] = []
    for _ in range(writes):
        rows = [row() for _ in range(chance.choice([1, 2, 5, 20]))]
        kind = chance.random()
        if kind < 0.15 and made:
            made.append(made[-1])
        elif kind < 0.3:
            made.append(Write(rows, delete=True))
        elif kind < 0.6 and engine.partial:
            others = range(1, len(engine.columns))
            columns = (0, *sorted(chance.sample(others, chance.randrange(1, len(others)))))
            # A new row of an aggregation would take the other values, too.
            made.append(Write([updated(None, each, columns) for each in rows], columns=columns))
        else:
            made.append(Write(rows))
    return made


def made(
    cluster: Tiering, java_client: FlussJavaClient, engine: Engine, *, buckets: int = 2, **options: Any
) -> TableInfo:
    path = new_path()
    java_client.create(
        path,
        engine.columns,
        primary_key=["id"],
        buckets=buckets,
        aggregates=engine.aggregates,
        properties={**TIERED, **engine.options},
        **options,
    )
    (table,) = cluster.client.get_tables([path])
    return table


def by_java(java_client: FlussJavaClient, table: TableInfo, engine: Engine, write: Write) -> None:
    names = list(engine.columns)
    columns = None if write.columns is None else [names[place] for place in write.columns]
    written = java_client.delete if write.delete else java_client.upsert
    assert written(table.path, write.rows, columns=columns) == len(write.rows)


def by_put(cluster: Tiering, table: TableInfo, write: Write) -> None:
    schema = arrow_schema(table.descriptor.columns)
    kind = WriteKind.DELETE if write.delete else WriteKind.UPSERT
    batch = pa.RecordBatch.from_pylist([dict(zip(schema.names, row, strict=True)) for row in write.rows], schema=schema)
    assert sum(cluster.client.write_rows(table.path, kind, [batch])) == len(write.rows)


def in_lake(cluster: Tiering, table: TableInfo, engine: Engine) -> Rows:
    names = list(engine.columns)
    rows = [[row[name] for name in names] for row in cluster.lake(table)]
    found = {row[0]: row for row in rows}
    assert len(found) == len(rows)
    return found


def replayed(java_client: FlussJavaClient, table: TableInfo) -> Rows:
    """Return what the changelog leaves, as Fluss's client reads it."""
    rows: Rows = {}
    for change in java_client.log(table.path):
        if change.kind in ("+I", "+U"):
            rows[change.values[0]] = change.values
        elif change.kind == "-D":
            del rows[change.values[0]]
    return rows


@pytest.mark.long
@pytest.mark.parametrize("name", ENGINES)
def test_the_lake_has_what_fluss_makes_of_the_writes(
    cluster: Tiering, java_client: FlussJavaClient, fluss_version: str, name: str
) -> None:
    engine = ENGINES[name]
    table = made(cluster, java_client, engine)
    expected: Rows = {}
    for number, write in enumerate(history(engine, seed=len(name), writes=40)):
        if write.columns is not None or number % 2:
            by_java(java_client, table, engine, write)
        else:
            by_put(cluster, table, write)
        expected = engine.applied(expected, write)
        if number in (13, 26, 39):
            assert replayed(java_client, table) == expected
            cluster.tier(table)
            assert in_lake(cluster, table, engine) == expected
            audit = cluster.audit(table)
            assert audit.equal, audit.differences
            assert sum(bucket.source.rows for bucket in audit.buckets) == len(expected)
    assert expected
    if fluss_version != "0.9.1":
        assert {row[0]: row for row in java_client.kv(table.path)} == expected


def test_a_round_of_writes_that_changed_nothing_moves_the_offsets(
    cluster: Tiering, java_client: FlussJavaClient
) -> None:
    """Such a write may leave a log batch without a row, with an offset of its own."""
    table = made(cluster, java_client, ENGINES["first_row"], buckets=1)
    java_client.upsert(table.path, [[key, "first", None, 1] for key in range(5)])
    cluster.tier(table)
    before = cluster.log_ends(table)

    java_client.upsert(table.path, [[key, "second", None, 2] for key in range(5)])
    java_client.delete(table.path, [[3, None, None, None]])
    put(cluster, table, WriteKind.UPSERT, id=[4], name=["third"], version=[1], amount=[3])

    ends = cluster.log_ends(table)
    (bucket,) = ends
    assert ends[bucket] > before[bucket]
    result = cluster.tier(table)
    assert result.state is TieringState.TIERED
    assert cluster.client.lake_snapshot(table.path).log_end_offsets == ends
    assert in_lake(cluster, table, ENGINES["first_row"]) == {key: [key, "first", None, 1] for key in range(5)}
    assert cluster.equal(table)


NUMBERED = Engine({"id": "BIGINT NOT NULL", "number": "BIGINT", "name": "STRING", "amount": "INT"}, updated)


def put(cluster: Tiering, table: TableInfo, kind: WriteKind, **columns: list) -> None:
    rows = pa.RecordBatch.from_pydict(columns)
    assert sum(cluster.client.write_rows(table.path, kind, [rows])) == rows.num_rows


@pytest.mark.parametrize("kind", ["BIGINT", "INT"])
@pytest.mark.long
def test_the_lake_has_the_numbers_that_fluss_gave(cluster: Tiering, java_client: FlussJavaClient, kind: str) -> None:
    engine = replace(NUMBERED, columns={**NUMBERED.columns, "number": kind})
    table = made(cluster, java_client, engine, auto_increment="number", buckets=1)
    chance = random.Random(1)
    expected: Rows = {}
    for number in range(24):
        rows = [
            [chance.randrange(20), None, chance.choice(["a", None]), chance.choice([number, None])]
            for _ in range(chance.choice([1, 2, 10]))
        ]
        if number % 2:
            java_client.upsert(table.path, rows, columns=["id", "name", "amount"])
        else:
            ids, _, names, amounts = (list(column) for column in zip(*rows, strict=True))
            put(cluster, table, WriteKind.UPSERT, amount=amounts, id=ids, name=names)
        for key, _, name, amount in rows:
            # A new key takes the next number, and keeps it.
            given = expected[key][1] if key in expected else len(expected) + 1
            expected[key] = [key, given, name, amount]
        if number in (7, 15, 23):
            assert replayed(java_client, table) == expected
            cluster.tier(table)
            assert in_lake(cluster, table, NUMBERED) == expected
            assert cluster.equal(table)


def test_what_fluss_refuses_is_refused_by_name(cluster: Tiering, java_client: FlussJavaClient) -> None:
    table = made(cluster, java_client, NUMBERED, auto_increment="number")
    assert table.descriptor.auto_increment_columns == ("number",)
    with refused(ErrorCode.INVALID_ROWS, "'number'", str(table.path), "expected the columns id, name, amount"):
        put(cluster, table, WriteKind.UPSERT, id=[1], number=[7], name=["a"], amount=[1])
    with pytest.raises(JavaClientError, match="not allowed"):
        java_client.upsert(table.path, [[1, 7, "a", 1]])
    put(cluster, table, WriteKind.UPSERT, id=[1], name=["a"], amount=[1])
    with refused(ErrorCode.INVALID_ROWS, str(table.path), "cannot be deleted", "'number'", "upsert nulls"):
        put(cluster, table, WriteKind.DELETE, id=[1])
    # Fluss deletes no such row: it takes away what is not numbered.
    java_client.delete(table.path, [[1, None, None, None]], columns=["id", "name", "amount"])
    assert replayed(java_client, table) == {1: [1, 1, None, None]}


def test_the_command_says_what_a_repeat_does(
    cluster: Tiering,
    java_client: FlussJavaClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = command(cluster, monkeypatch)
    table = made(cluster, java_client, replace(NUMBERED, options={"table.merge-engine": "aggregation"}))
    good, bad = tmp_path / "good.csv", tmp_path / "bad.csv"
    good.write_text("id,number,name,amount\n1,2,a,3\n")
    bad.write_text("id,number,name,amount\nx,2,a,3\n")
    with refused(ErrorCode.INVALID_ROWS, "A repeat aggregates them once more"):
        run("put", str(table.path), str(good), str(bad), "--server", cluster.target)

    numbers = made(cluster, java_client, NUMBERED, auto_increment="number")
    good.write_text("id,name,amount\n1,a,3\n")
    assert run("put", str(numbers.path), str(good), "--server", cluster.target) == 0
    assert replayed(java_client, numbers) == {1: [1, 1, "a", 3]}
    assert run("tables", "describe", str(numbers.path), "--json", "--server", cluster.target) == 0
    (described,) = json.loads(capsys.readouterr().out.partition("\n")[2])
    assert described["auto_increment_columns"] == ["number"]
