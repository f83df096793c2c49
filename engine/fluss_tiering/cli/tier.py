"""`fluss-tiering tier`: one round of each table, in a Spark session of its own."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from fluss_tiering.cli import options, output
from fluss_tiering.cli.output import Heading
from fluss_tiering.client import DEFAULT_TARGET, TieringClient
from fluss_tiering.model.duration import parse_duration_ms
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import TieringState
from fluss_tiering.spark import submit
from fluss_tiering.spark.round.waves import time_limit_s

if TYPE_CHECKING:
    from fluss_tiering.spark.round.result import TableResult


def tier(
    tables: Annotated[
        list[TablePath] | None,
        typer.Argument(parser=TablePath.parse, metavar="[DATABASE.TABLE]...", help="The tables.", show_default=False),
    ] = None,
    pending: Annotated[bool, typer.Option("--pending", help="Every table that is pending.")] = False,
    drain: Annotated[
        bool, typer.Option("--drain", help="Round after round, of these tables or of all, until none is pending.")
    ] = False,
    follow: Annotated[bool, typer.Option("--follow", help="With --drain: wait for more when none is pending.")] = False,
    time_budget: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="With --drain: after it, as 30min, no round begins."),
    ] = None,
    master: Annotated[str, typer.Option(help="Spark's master.")] = "local[*,4]",
    max_round_bytes: Annotated[
        int | None, typer.Option(min=1, help="Log bytes of a table in one round; the rest is due at once.")
    ] = None,
    max_round_duration: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="How long a round may read, as 10min, or 'freshness'; the rest is due at once.",
        ),
    ] = None,
    claim_timeout: Annotated[
        float | None, typer.Option(min=0, help="Seconds to wait for a table that another round holds.")
    ] = None,
    print_submit: Annotated[
        bool, typer.Option("--print-submit", help="Print the spark-submit command that does the same, and do nothing.")
    ] = False,
    server: options.Server = DEFAULT_TARGET,
    json: options.Json = False,
) -> None:
    """Tier tables into the lake now, each in a round of its own."""
    # Else it would come to light in the rounds, which would all fail.
    time_limit_s({}, max_round_duration)
    if not drain and (follow or time_budget is not None):
        raise FlussTieringError(ErrorCode.INVALID_REQUEST, "--follow and --time-budget are for --drain: give it too")
    if time_budget is not None:
        parse_duration_ms(time_budget)
    paths = list(dict.fromkeys(tables or [])) if drain else _chosen(tables or [], pending, server)
    if not paths and not drain:
        output.console.print("No table is pending.")
        return
    if print_submit:
        command = _submit_command(
            master,
            submit.application_arguments(
                server=server,
                tables=paths,
                max_round_bytes=max_round_bytes,
                max_round_duration=max_round_duration,
                claim_timeout_s=claim_timeout,
                drain=drain,
                follow=follow,
                time_budget=time_budget,
            ),
        )
        output.console.print(command, soft_wrap=True)
        return
    from fluss_tiering.spark import application  # noqa: PLC0415 - Spark and pyarrow, for this command only
    from fluss_tiering.spark.options import TierOptions, claim_timeout_s  # noqa: PLC0415

    results = application.run(
        TierOptions(
            server=server,
            tables=tuple(paths),
            master=master,
            max_round_bytes=max_round_bytes,
            max_round_duration=max_round_duration,
            claim_timeout_s=claim_timeout_s(claim_timeout, drain=drain),
            drain=drain,
            follow=follow,
            time_budget=time_budget,
        )
    )
    if json:
        output.print_json(_as_json(each) for each in results)
    else:
        _print(results)
    raise typer.Exit(application.exit_code(results, outcome_in_status=False))


def _chosen(tables: list[TablePath], pending: bool, server: str) -> list[TablePath]:
    if bool(tables) == pending:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST, "name the tables to tier, or give --pending for all that are due"
        )
    if tables:
        return list(dict.fromkeys(tables))
    with TieringClient(server) as client:
        return [each.path for each in client.list_tiering_statuses() if each.state is TieringState.PENDING]


def _submit_command(master: str, arguments: list[str]) -> str:
    conf = submit.conf_arguments(submit.spark_conf())
    return shlex.join(["spark-submit", "--master", master, *conf, str(submit.APPLICATION), *arguments])


def _print(results: list[TableResult]) -> None:
    output.print_table(
        None,
        [
            Heading("Table"),
            Heading("Outcome"),
            Heading("Epoch", numeric=True),
            Heading("Rows", numeric=True),
            Heading("Bytes", numeric=True),
            Heading("Files", numeric=True),
            Heading("Lake snapshot", numeric=True),
            Heading("Seconds", numeric=True),
        ],
        (
            [
                str(each.path),
                output.status_cell(each.state),
                output.count_cell(each.epoch),
                output.count_cell(each.stats.rows),
                output.bytes_cell(each.stats.bytes),
                output.count_cell(each.stats.files),
                output.text_cell(str(each.stats.lake_snapshot_id) if each.stats.lake_snapshot_id else None),
                f"{each.seconds:.1f}",
            ]
            for each in results
        ),
        empty="No table was tiered.",
    )
    output.print_errors((str(each.path), each.error) for each in results if each.error)


def _as_json(result: TableResult) -> dict[str, object]:
    return {
        "database_name": result.path.database,
        "table_name": result.path.table,
        "status": result.state.value,
        "tiering_epoch": result.epoch,
        "rows": result.stats.rows,
        "bytes": result.stats.bytes,
        "files": result.stats.files,
        "lake_snapshot_id": result.stats.lake_snapshot_id,
        "complete": result.complete,
        "seconds": round(result.seconds, 3),
        "error": result.error,
    }
