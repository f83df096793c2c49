"""`fluss-tiering history`: show the last rounds of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Annotated

import typer
from rich.markup import escape

from fluss_tiering.cli.common import options, output
from fluss_tiering.cli.common.output import Heading
from fluss_tiering.cli.status_view import dropped_line_of, origin_text
from fluss_tiering.client import DEFAULT_TARGET, TieringClient
from fluss_tiering.model.tiering import TieringRound, TieringState
from fluss_tiering.plural import counted
from fluss_tiering.short_times import took

_HEADINGS = (
    Heading("Epoch", numeric=True),
    Heading("Outcome", whole=True),
    Heading("Started", spare=1),
    Heading("Took", numeric=True, spare=3),
    Heading("Rows", numeric=True, spare=2),
    Heading("Size", numeric=True, spare=4),
    Heading("Files", numeric=True, spare=5),
    Heading("DAG run", whole=True, spare=6),
    Heading("Driver", whole=True, spare=7),
)


def history(
    table: options.Table,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="The number of rounds to show, newest first.")] = 20,
    all_rounds: Annotated[
        bool,
        typer.Option("--all", "-a", help="Show each round without rows, and not one line for several in a row."),
    ] = False,
    server: options.Server = DEFAULT_TARGET,
    json: options.Json = False,
) -> None:
    """Show the last rounds of a table: what each round wrote, how it ended, who ran it and in which DAG run.

    Rows is the number of changes that a round took into the lake: rows that were written and rows that were deleted.
    A line at the end tells how many records were dropped with a partition before they were in the lake.

    Times are in UTC.
    """
    with TieringClient(server) as client:
        rounds = client.list_tiering_rounds(table, limit=limit)
        dropped = None if json else dropped_line_of(client, table)
    if json:
        output.print_json(_as_json(each) for each in rounds)
        return
    rows = [[each] for each in rounds] if all_rounds else _folded(rounds)
    output.print_table(str(table), _HEADINGS, (_as_row(each) for each in rows), empty=f"{table} has had no round yet.")
    for each in rounds:
        if each.error:
            output.print_errors([(f"epoch {each.tiering_epoch}", each.error)])
            if each.origin is not None and (of := origin_text(each.origin)):
                output.print_sentence(f"  {escape(of)}")
    if dropped is not None:
        output.print_warning(dropped)


def _folded(rounds: Sequence[TieringRound]) -> list[list[TieringRound]]:
    """Return the rounds one by one, but those without rows that follow each other together."""
    return [
        part
        for is_empty, group in groupby(rounds, _is_empty)
        for part in ([list(group)] if is_empty else [[each] for each in group])
    ]


def _is_empty(tiering_round: TieringRound) -> bool:
    stats = tiering_round.stats
    return tiering_round.state is TieringState.TIERED and stats is not None and stats.lake_snapshot_id is None


def _as_row(rounds: Sequence[TieringRound]) -> list[str]:
    newest, oldest = rounds[0], rounds[-1]
    if len(rounds) > 1:
        return [
            f"{oldest.tiering_epoch:,}–{newest.tiering_epoch:,}",
            f"[dim]{counted(len(rounds), 'round')} without rows[/]",
            output.moment(oldest.start_time),
            output.NOTHING,
            "0",
            *[output.NOTHING] * 4,
        ]
    stats = newest.stats
    return [
        output.count_cell(newest.tiering_epoch),
        output.status_cell("Interrupted" if newest.interrupted else newest.state),
        output.moment(newest.start_time),
        output.NOTHING if newest.end_time is None else took(newest.end_time - newest.start_time),
        output.count_cell(stats.rows if stats else None),
        output.bytes_cell(stats.bytes if stats else None),
        output.count_cell(stats.files if stats else None),
        output.text_cell(_dag_run(newest)),
        output.text_cell(newest.driver),
    ]


def _dag_run(tiering_round: TieringRound) -> str | None:
    origin = tiering_round.origin
    return f"{origin.dag_id}, {origin.run_id}" if origin is not None and origin.dag_id else None


def _as_json(tiering_round: TieringRound) -> dict[str, object]:
    stats = tiering_round.stats
    return {
        "table": str(tiering_round.path),
        "tiering_epoch": tiering_round.tiering_epoch,
        "status": tiering_round.state.value,
        "start_time": output.iso_time(tiering_round.start_time),
        "end_time": output.iso_time(tiering_round.end_time),
        "rows": stats.rows if stats else None,
        "bytes": stats.bytes if stats else None,
        "files": stats.files if stats else None,
        "lake_snapshot_id": stats.lake_snapshot_id if stats else None,
        "force_finished": tiering_round.force_finished,
        "interrupted": tiering_round.interrupted,
        "lease_id": tiering_round.lease_id,
        "driver": tiering_round.driver,
        "origin": None if tiering_round.origin is None else asdict(tiering_round.origin),
        "error": tiering_round.error,
    }
