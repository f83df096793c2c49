"""The rounds that need no Spark: those of tables with nothing new, before the application starts a session."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from fluss_tiering.client import TieringClient, finish_unchanged_tables
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import TieringState
from fluss_tiering.model.units import parse_duration_ms
from fluss_tiering.spark.drain import REST_S, PendingTables
from fluss_tiering.spark.maintenance.plan import tables_to_maintain
from fluss_tiering.spark.options import TierOptions
from fluss_tiering.spark.retry import RetryingClient
from fluss_tiering.spark.round.result import TableResult
from fluss_tiering.spark.startup.jvm import under_spark_submit

_LOOK_S: Final = 1.0
"""The longest time between two looks at what is pending, in seconds."""


def without_spark(
    client: TieringClient, options: TierOptions, paths: Sequence[TablePath]
) -> dict[TablePath, TableResult]:
    """Run the rounds of the tables that have nothing new, if this process would have to start Spark for them.

    A drain runs those of pending tables, which are all pending tables if it names none.
    """
    if under_spark_submit():
        return {}
    wanted = frozenset(paths)
    statuses = [
        each
        for each in client.list_tiering_statuses()
        if (each.path in wanted or not paths) and (each.state is TieringState.PENDING or not options.drain)
    ]
    began = time.monotonic()
    claims = finish_unchanged_tables(client, statuses, lease_id=options.lease_id, attempt_token=options.attempt_token)
    seconds = time.monotonic() - began
    return {
        path: TableResult(path, TieringState.TIERED, seconds, epoch=claim.tiering_epoch, recorded=True)
        for path, claim in claims.items()
    }


def before_spark(client: TieringClient, options: TierOptions) -> tuple[dict[TablePath, TableResult], TierOptions, bool]:
    """Run the rounds of a drain that need no Spark. One that follows waits until a table needs Spark.

    That is a pending table, or one to be maintained after nothing has been pending for the interval of maintenance.

    Returns:
        The outcomes, the options with the time that is left, and whether Spark is needed.
    """
    if not options.follow:
        done = without_spark(client, options, options.tables)
        return done, options, _is_pending(client, options.tables, but=done)
    budget_s = math.inf if options.time_budget is None else parse_duration_ms(options.time_budget) / 1000
    began, done, needs_spark = time.monotonic(), dict[TablePath, TableResult](), False
    interval_s = parse_duration_ms(options.maintenance_interval) / 1000
    next_look = began + interval_s
    rests_until: dict[TablePath, float] = {}
    waiting = RetryingClient(options.server, stopped=threading.Event())
    with waiting, PendingTables(waiting, options.tables) as pending:
        while not needs_spark and (left_s := began + budget_s - time.monotonic()) > 0:
            if due := [path for path in pending.longest_waiting() if time.monotonic() >= rests_until.get(path, 0.0)]:
                done |= (now := without_spark(waiting, options, due))
                rests_until |= dict.fromkeys(now, time.monotonic() + REST_S)
                needs_spark = _is_pending(waiting, due, but=now)
            elif time.monotonic() >= next_look:
                next_look += interval_s
                needs_spark = _has_lake_to_maintain(waiting, options.tables)
            if not needs_spark:
                pending.wait(min(_LOOK_S, left_s))
    if options.time_budget is not None:
        options = replace(options, time_budget=f"{max(1, round(left_s * 1000))}ms")
    return done, options, needs_spark


def _has_lake_to_maintain(client: TieringClient, paths: Sequence[TablePath]) -> bool:
    """Return whether the options of a table ask for maintenance, and something of it is in the lake."""
    return any(
        client.lake_snapshot(table.path) is not None
        for table, _ in tables_to_maintain(client, ())
        if not paths or table.path in paths
    )


def _is_pending(client: TieringClient, paths: Sequence[TablePath], *, but: Collection[TablePath]) -> bool:
    """Return whether one of the tables is pending, or any table if none is named.

    Args:
        but: The tables that had a round a moment ago, which found nothing new. With a short freshness they can be
            pending again.
    """
    pending = {each.path for each in client.list_tiering_statuses() if each.state is TieringState.PENDING}
    return any(path in paths or not paths for path in pending.difference(but))
