"""`fluss-tiering expire`: remove old snapshots of lake tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from fluss_tiering.cli.common import options, output
from fluss_tiering.cli.common.output import Heading
from fluss_tiering.cli.lake.derived_options import with_options
from fluss_tiering.cli.lake.kept_snapshots import print_kept
from fluss_tiering.cli.lake.spark_session import each_table, spark_session
from fluss_tiering.client import DEFAULT_TARGET, TieringClient
from fluss_tiering.spark.maintenance_options import ExpireOptions
from fluss_tiering.spark.startup.rights import check_may_tier

if TYPE_CHECKING:
    from fluss_tiering.spark.maintenance.expire import Expiry


@with_options(ExpireOptions, ("older_than", "retain_last"), behind="tables")
def expire(
    tables: options.Tables,
    master: options.Master = options.DEFAULT_MASTER,
    server: options.Server = DEFAULT_TARGET,
    json: options.Json = False,
    **given: Any,
) -> None:
    """Remove old snapshots of lake tables, and the files that only those snapshots refer to.

    The command keeps the snapshot that is registered at the server and every later one, because readers of Fluss and
    the recovery of rounds need them. Rounds may run at the same time.
    """
    what = ExpireOptions(server, tuple(dict.fromkeys(tables)), **given)
    age = None if what.older_than is None else options.duration("--older-than", what.older_than)
    from fluss_tiering.spark.maintenance.expire import expire_snapshots  # noqa: PLC0415 - Spark, for this command only

    with TieringClient(server) as client:
        infos = client.get_tables(what.tables)
        check_may_tier(client)
        with spark_session(master) as spark:
            found = each_table(
                "expiring snapshots",
                infos,
                lambda each: expire_snapshots(client, spark, each, older_than=age, retain_last=what.retain_last),
            )
    if json:
        output.print_json(_as_json(each) for each in found)
    else:
        _print(found)
    raise typer.Exit(1 if any(each.error for each in found) else 0)


def _print(found: list[Expiry]) -> None:
    output.print_table(
        None,
        [
            Heading("Table"),
            Heading("Expired", numeric=True),
            Heading("Kept", numeric=True),
            Heading("Files deleted", numeric=True),
            Heading("Seconds", numeric=True),
        ],
        (
            [
                str(each.path),
                output.count_cell(each.expired),
                output.count_cell(each.kept),
                output.count_cell(each.deleted_files),
                f"{each.seconds:.1f}",
            ]
            for each in found
            if not each.error
        ),
        empty="The expiry failed for every table.",
    )
    for each in found:
        print_kept(each.path, each.needed)
    output.print_errors((str(each.path), each.error) for each in found if each.error)


def _as_json(found: Expiry) -> dict[str, object]:
    return {
        "database_name": found.path.database,
        "table_name": found.path.table,
        "expired": found.expired,
        "kept": found.kept,
        "needed": found.needed,
        "deleted_files": found.deleted_files,
        "seconds": round(found.seconds, 3),
        "error": found.error,
    }
