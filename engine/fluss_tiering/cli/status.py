"""`fluss-tiering status`: why a table is where it is."""

from __future__ import annotations

from fluss_tiering.cli import options, output
from fluss_tiering.cli.output import Heading
from fluss_tiering.client import DEFAULT_TARGET, TieringClient
from fluss_tiering.model.tiering import TieringStatus


def status(
    table: options.OptionalTable = None, server: options.Server = DEFAULT_TARGET, json: options.Json = False
) -> None:
    """Show each table's tiering status, with its last error."""
    with TieringClient(server) as client:
        statuses = client.list_tiering_statuses(table)
    if json:
        output.print_json(_as_json(each) for each in statuses)
        return
    output.print_table(
        None,
        [
            Heading("Table"),
            Heading("Status"),
            Heading("For"),
            Heading("Epoch", numeric=True),
            Heading("Last tiered"),
            Heading("Failures", numeric=True),
            Heading("Next try"),
        ],
        (_as_row(each) for each in statuses),
        empty="No table is tiered yet. Create one with `fluss-tiering tables create`.",
    )
    output.print_errors(
        (f"{each.path}, {output.ago_cell(each.last_error_time)}", each.last_error)
        for each in statuses
        if each.last_error
    )


def _as_row(status: TieringStatus) -> list[str]:
    return [
        str(status.path),
        output.status_cell(status.state),
        output.since_cell(status.state_since),
        output.count_cell(status.tiering_epoch),
        output.ago_cell(status.last_tiered_time),
        output.count_cell(status.consecutive_failures or None),
        output.ago_cell(status.next_retry_time),
    ]


def _as_json(status: TieringStatus) -> dict[str, object]:
    return {
        "database_name": status.path.database,
        "table_name": status.path.table,
        "table_id": status.table_id,
        "status": status.state.value,
        "status_since": output.iso_time(status.state_since),
        "tiering_epoch": status.tiering_epoch,
        "last_tiered_time": output.iso_time(status.last_tiered_time),
        "last_error": status.last_error,
        "last_error_time": output.iso_time(status.last_error_time),
        "consecutive_failures": status.consecutive_failures,
        "next_retry_time": output.iso_time(status.next_retry_time),
    }
