"""`fluss-tiering tier`: run one round of each table, in a Spark session that the command starts."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import asdict, replace
from json import dumps
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from fluss_tiering.cli.common import options, output
from fluss_tiering.cli.common.options import with_options
from fluss_tiering.cli.common.output import Heading
from fluss_tiering.cli.lake.maintain import maintenance_as_json
from fluss_tiering.cli.lake.spark_session import starting
from fluss_tiering.client import DEFAULT_TARGET, TieringClient
from fluss_tiering.client.security import TOKEN_FILE_VARIABLE, TOKEN_VARIABLE, VARIABLES
from fluss_tiering.client.target import Target
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import TieringState
from fluss_tiering.spark import submit
from fluss_tiering.spark.options import TierOptions

if TYPE_CHECKING:
    from fluss_tiering.spark.maintenance.maintain import Maintenance
    from fluss_tiering.spark.round.result import TableResult


_OPTIONS: Final = (
    "drain",
    "follow",
    "time_budget",
    "master",
    "max_round_bytes",
    "max_round_duration",
    "claim_timeout_s",
    "skip_missing_log",
    "maintenance_interval",
    "maintenance_bytes",
    "maintenance_cores",
)
"""Fields of `TierOptions` that are options of the command, too, in the order of its help."""
_ROUND_FIELDS: Final = (
    "status",
    "tiering_epoch",
    "rows",
    "bytes",
    "files",
    "lake_snapshot_id",
    "complete",
    "interrupted",
    "seconds",
    "error",
)
"""What the JSON output says of a round."""


@with_options(TierOptions, _OPTIONS, behind="pending")
def tier(
    tables: Annotated[
        list[TablePath] | None,
        typer.Argument(parser=TablePath.parse, metavar="DATABASE.TABLE", help="The tables.", show_default=False),
    ] = None,
    pending: Annotated[bool, typer.Option("--pending", help="Tier every table that is pending.")] = False,
    print_submit: Annotated[
        bool,
        typer.Option(
            "--print-submit",
            help="Only print the spark-submit command that does the same. With --package and --json, print what a "
            "driver on another machine runs.",
        ),
    ] = False,
    package: Annotated[
        str | None,
        typer.Option(
            metavar="URI",
            help="With --print-submit --json: the folder that `fluss-tiering package` has filled.",
            show_default=False,
        ),
    ] = None,
    spark_version: Annotated[
        str | None,
        typer.Option(
            metavar="VERSION",
            help="With --package: the version of Spark there, for example 3.5.",
            show_default="that of this machine",
        ),
    ] = None,
    server: options.Server = DEFAULT_TARGET,
    json: options.Json = False,
    **given: Any,
) -> None:
    """Tier tables into the lake now, each in a round of its own.

    The exit code is 1 if a table failed. It is 3 if none failed, but some were interrupted: somebody cancelled them, or
    Spark has ended.

    Rows is the number of changes that a round took into the lake: rows that were written and rows that were deleted.

    The seconds of a table include the time for which the command waits until another application's round has ended.
    """
    if (package is not None) != (print_submit and json) or (spark_version and package is None):
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            "--package, --spark-version and --json are about a driver on another machine: expected "
            "--print-submit --json --package URI, or --print-submit alone",
        )
    what = TierOptions(server=server, tables=tuple(dict.fromkeys(tables or ())), **given)
    if what.drain and pending:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST, "--drain tiers pending tables by itself: leave out --pending"
        )
    if not what.drain:
        what = replace(what, tables=_chosen(what.tables, pending, server))
        if not what.tables:
            output.print_nothing("No table is pending.", as_json=json)
            return
    if package is not None:
        _print_request(what, package, spark_version)
        return
    if print_submit:
        output.print_as_it_is(_submit_command(what))
        if os.environ.get(TOKEN_VARIABLE):
            output.print_sentence(
                f"The command needs the token that {TOKEN_VARIABLE} holds here. Put it into a file and name the file "
                f"with {TOKEN_FILE_VARIABLE}.",
                output.error_console,
            )
        return
    from fluss_tiering.spark import application  # noqa: PLC0415 - Spark and pyarrow, for this command only
    from fluss_tiering.spark.ended import SparkEndedError  # noqa: PLC0415
    from fluss_tiering.spark.round.progress import Progress  # noqa: PLC0415

    maintained: list[Maintenance] = []
    try:
        results = application.run(
            what,
            progress=Progress(output.print_progress, with_errors=what.follow),
            starting=lambda: starting(what.master),
            # A drain may go on for months: only what is printed at its end is kept.
            maintained=maintained.append if json else lambda done: None,
        )
    except SparkEndedError as error:
        output.print_error(error.message)
        raise typer.Exit(application.EXIT_INTERRUPTED) from None
    if json:
        output.print_json(_all_as_json(results, maintained))
    else:
        _print(results)
    raise typer.Exit(application.exit_code(results, outcome_in_status=False))


def _chosen(tables: tuple[TablePath, ...], pending: bool, server: str) -> tuple[TablePath, ...]:
    if tables and pending:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"--pending tiers every pending table, but {', '.join(map(str, tables))} is named, too: leave out "
            "--pending to tier what is named, or leave out the names",
        )
    if not tables and not pending:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST, "nothing to tier: expected the names of tables, --pending or --drain"
        )
    if tables:
        return tables
    with TieringClient(server) as client:
        return tuple(each.path for each in client.list_tiering_statuses() if each.state is TieringState.PENDING)


def _submit_command(what: TierOptions) -> str:
    conf = submit.conf_arguments(submit.spark_conf())
    arguments = submit.application_arguments(what)
    command = shlex.join(["spark-submit", "--master", what.master, *conf, str(submit.APPLICATION), *arguments])
    # The credentials of the caller are paths in the environment, and no options of the application. A token itself is
    # never printed: terminals and logs keep what they show.
    given = {name: value for name in sorted(VARIABLES - {TOKEN_VARIABLE}) if (value := os.environ.get(name))}
    return "".join([*(f"{name}={shlex.quote(value)} " for name, value in given.items()), command])


def _print_request(what: TierOptions, package: str, spark_version: str | None) -> None:
    arguments = submit.application_arguments(what)
    request = submit.submit_request(submit.APPLICATION, arguments, package=package, version=spark_version)
    output.print_as_it_is(dumps(asdict(request), indent=2))
    if Target.parse(what.server).is_loopback:
        output.print_warning(
            f"a driver on another machine does not reach a server at {what.server}: give the address that it has there "
            "with --server"
        )


def _print(results: list[TableResult]) -> None:
    output.print_table(
        None,
        [
            Heading("Table"),
            Heading("Outcome"),
            Heading("Epoch", numeric=True, spare=2),
            Heading("Rows", numeric=True),
            Heading("Size", numeric=True, spare=1),
            Heading("Files", numeric=True, spare=3),
            Heading("Lake snapshot", numeric=True, spare=4),
            Heading("Seconds", numeric=True),
        ],
        (
            [
                str(each.path),
                output.status_cell(each.outcome),
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


def _all_as_json(results: Sequence[TableResult], maintained: Sequence[Maintenance]) -> list[dict[str, object]]:
    """Return an object for each table. A table that was only maintained has nothing but null about its round."""
    rounds = {each.path: _round_as_json(each) for each in results}
    nothing: dict[str, object] = dict.fromkeys(_ROUND_FIELDS)
    done: dict[TablePath, list[dict[str, object]]] = {path: [] for path in rounds}
    for each in maintained:
        done.setdefault(each.path, []).append(maintenance_as_json(each))
    return [
        {
            "database_name": path.database,
            "table_name": path.table,
            **rounds.get(path, nothing),
            "maintenance": done[path],
        }
        for path in done
    ]


def _round_as_json(result: TableResult) -> dict[str, object]:
    values = (
        result.state.value,
        result.epoch,
        result.stats.rows,
        result.stats.bytes,
        result.stats.files,
        result.stats.lake_snapshot_id,
        result.complete,
        result.interrupted,
        round(result.seconds, 3),
        result.error,
    )
    return dict(zip(_ROUND_FIELDS, values, strict=True))
