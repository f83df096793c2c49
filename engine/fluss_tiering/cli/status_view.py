"""How tiering statuses are shown: as a table for people, as JSON for programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.console import Group
from rich.text import Text

from fluss_tiering.cli import output
from fluss_tiering.cli.outlook import Outlook
from fluss_tiering.cli.output import Heading
from fluss_tiering.model.cluster import ClusterHealth, ClusterHealthStatus
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import TieringStatus

_HEADINGS = (
    Heading("Table"),
    Heading("Status"),
    Heading("For", spare=1),
    Heading("Epoch", numeric=True, spare=3),
    Heading("Last tiered"),
    Heading("Failures", numeric=True, spare=2),
    Heading("Next round"),
)
_HEALTH_STYLES = {
    ClusterHealthStatus.GREEN: "green",
    ClusterHealthStatus.YELLOW: "yellow",
    ClusterHealthStatus.RED: "bold red",
    ClusterHealthStatus.UNKNOWN: "white",
}
_WAITING = Heading("Waiting", numeric=True)
_EMPTY = "No table is tiered yet. Create one with `fluss-tiering tables create`."


def print_statuses(statuses: Iterable[TieringStatus], outlooks: Mapping[TablePath, Outlook]) -> None:
    """Print the statuses as a table, with their errors below."""
    shown = list(statuses)
    rows = (
        [*_as_row(each, outlooks[each.path].next_round), output.count_cell(outlooks[each.path].waiting)]
        for each in shown
    )
    output.print_table(None, [*_HEADINGS, _WAITING], rows, empty=_EMPTY)
    output.print_errors(_errors(shown))


def status_table(statuses: Iterable[TieringStatus]) -> Group:
    """Return the statuses as a table with their errors below, which a terminal can draw again and again."""
    shown = list(statuses)
    errors = [
        Text(f"{what}: {output.harmless(message.splitlines()[0])}", "red")
        for what, message in _errors(shown)
        if message.strip()
    ]
    return Group(output.make_table(_HEADINGS, (_as_row(each, each.next_retry_time) for each in shown)), *errors)


def status_as_json(status: TieringStatus) -> dict[str, object]:
    """Return a status as a JSON object."""
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
        "parked": status.parked,
    }


def health_line(health: ClusterHealth) -> str:
    """Return a line with rich markup about the health of a cluster."""
    if health.status is ClusterHealthStatus.UNKNOWN and not health.buckets:
        return "Fluss cluster: Unknown, its coordinator does not answer or does not know"
    style = _HEALTH_STYLES[health.status]
    return (
        f"Fluss cluster: [{style}]{health.status.value}[/], "
        f"{health.active_leaders:,} of {health.buckets:,} buckets have a leader that serves, "
        f"{health.in_sync_replicas:,} of {health.replicas:,} replicas are in sync"
    )


def _errors(statuses: Iterable[TieringStatus]) -> list[tuple[str, str]]:
    return [
        (f"{each.path}, {output.ago_cell(each.last_error_time)}", each.last_error)
        for each in statuses
        if each.last_error
    ]


def _as_row(status: TieringStatus, next_round: int | None) -> list[str]:
    return [
        str(status.path),
        output.status_cell(status.state),
        output.since_cell(status.state_since),
        output.count_cell(status.tiering_epoch),
        output.ago_cell(status.last_tiered_time),
        output.count_cell(status.consecutive_failures or None),
        "[bold red]parked:[/] fluss-tiering resume" if status.parked else output.ago_cell(next_round),
    ]
