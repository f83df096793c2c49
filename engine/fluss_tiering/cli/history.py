"""`fluss-tiering history`: show the last rounds of a table."""

from __future__ import annotations

from typing import Annotated

import humanize
import typer

from fluss_tiering.cli.common import options, output
from fluss_tiering.cli.common.output import Heading
from fluss_tiering.cli.status_view import dropped_line_of
from fluss_tiering.client import DEFAULT_TARGET, TieringClient
from fluss_tiering.model.tiering import TieringRound


def history(
    table: options.Table,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="The number of rounds to show, newest first.")] = 20,
    server: options.Server = DEFAULT_TARGET,
    json: options.Json = False,
) -> None:
    """Show the last rounds of a table: what each round wrote, how it ended and who ran it.

    Rows is the number of changes that a round took into the lake: rows that were written and rows that were deleted.
    A line at the end tells how many records were dropped with a partition before they were in the lake.
    """
    with TieringClient(server) as client:
        rounds = client.list_tiering_rounds(table, limit=limit)
        dropped = None if json else dropped_line_of(client, table)
    if json:
        output.print_json(_as_json(each) for each in rounds)
        return
    output.print_table(
        str(table),
        [
            Heading("Epoch", numeric=True),
            Heading("Outcome"),
            Heading("Started"),
            Heading("Took"),
            Heading("Rows", numeric=True),
            Heading("Size", numeric=True, spare=1),
            Heading("Files", numeric=True, spare=2),
            Heading("Driver", spare=3),
        ],
        (_as_row(each) for each in rounds),
        empty=f"{table} has had no round yet.",
    )
    output.print_errors((f"epoch {each.tiering_epoch}", each.error) for each in rounds if each.error)
    if dropped is not None:
        output.print_warning(dropped)


def _as_row(tiering_round: TieringRound) -> list[str]:
    stats = tiering_round.stats
    took = (
        output.NOTHING
        if tiering_round.end_time is None
        else humanize.precisedelta((tiering_round.end_time - tiering_round.start_time) / 1000, format="%0.1f")
    )
    return [
        output.count_cell(tiering_round.tiering_epoch),
        output.status_cell("Interrupted" if tiering_round.interrupted else tiering_round.state),
        output.ago_cell(tiering_round.start_time),
        took,
        output.count_cell(stats.rows if stats else None),
        output.bytes_cell(stats.bytes if stats else None),
        output.count_cell(stats.files if stats else None),
        output.text_cell(tiering_round.driver),
    ]


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
        "error": tiering_round.error,
    }
