"""Writes: acknowledged ones, and those that are broken off, of which some rows may be there and others not."""

from __future__ import annotations

import time

import pyarrow as pa

from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import WriteKind
from torture.arrow_values import rows_of, table_of
from torture.faults.writes import broken_off
from torture.judging.checks import WrongError
from torture.judging.doubts import can_settle
from torture.makers.rows import columns_of, rows_of_step
from torture.plan import PlannedTable, Step
from torture.steps.running import Running
from torture.values import Value

_SETTLED_S = 0.3


def write(run: Running, step: Step) -> None:
    """Write rows or delete them, and break it off if the step has a fault."""
    name, kind = step["table"], WriteKind(step["kind"])
    table, model = run.planned(name), run.models[name]
    rows = rows_of_step(table, step)
    batch = _batch(table, kind, rows)
    fault = step.get("fault")
    if fault is not None and can_settle(table.typed, run.lake_keys(name)):
        _note(run, name, kind, rows, broken_off(run.world, run.infos[name].path, kind, batch, fault))
        run.tally.counts[f"writes broken off: {fault['what']}"] += 1
        return
    try:
        assert sum(run.world.client.write_rows(run.infos[name].path, kind, [batch])) == batch.num_rows
    except FlussTieringError as error:
        if error.code is not ErrorCode.INVALID_ROWS:
            raise WrongError("a write fails", f"{kind} to {table.name}: {error.message}") from error
        run.tally.refused[f"rows: {error.message[:110]}"] += 1
        return
    model.written(kind, rows)
    run.tally.counts["rows written"] += len(rows)


def _batch(table: PlannedTable, kind: WriteKind, rows: list[tuple[Value, ...]]) -> pa.Table:
    columns = table.typed
    if kind is not WriteKind.DELETE:
        return table_of(columns, rows)
    places = columns_of(table, table.primary_key)
    return table_of([columns[place] for place in places], [[row[place] for place in places] for row in rows])


def _note(run: Running, name: str, kind: WriteKind, rows: list[tuple[Value, ...]], acknowledged: int) -> None:
    """Tell the model which rows are there, the acknowledged ones, and which may be."""
    model, planned = run.models[name], run.planned(name)
    model.written(kind, rows[:acknowledged])
    in_doubt = rows[acknowledged:]
    run.tally.counts["rows written"] += acknowledged
    run.tally.counts["rows in doubt"] += len(in_doubt)
    if not in_doubt:
        return
    if not planned.primary_key:
        model.appended_in_doubt(in_doubt)
        return
    _wait_until_nothing_is_written(run, name)
    with run.world.client.scan(run.infos[name]) as scan:
        table = pa.Table.from_batches(list(scan), arrow_schema(planned.typed))
    wrong = model.changed_in_doubt(kind, in_doubt, rows_of(planned.typed, table))
    if wrong:
        shown = "; ".join(f"{key!r:.200}: {row!r:.400}" for key, row in list(wrong.items())[:3])
        raise WrongError("a write that was broken off leaves other rows", shown)


def _wait_until_nothing_is_written(run: Running, name: str) -> None:
    """Wait until the server has done what it had received of a write whose client is gone."""
    path = run.infos[name].path
    before = None
    while (now := [each.log_end_offset for each in run.world.client.list_buckets([path])[path]]) != before:
        before = now
        time.sleep(_SETTLED_S)
