"""`fluss-tiering clean`: list or delete files of lake tables that no snapshot refers to."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from fluss_tiering.cli.common import options, output
from fluss_tiering.cli.lake.spark_session import each_table, spark_session
from fluss_tiering.client import DEFAULT_TARGET, TieringClient
from fluss_tiering.model.lake import nothing_tiered, skipped_text
from fluss_tiering.model.table import TableInfo, TablePath
from fluss_tiering.spark.startup.checks import check_may_tier

if TYPE_CHECKING:
    from fluss_tiering.lake.iceberg.orphans import Orphan
    from fluss_tiering.spark.audit.clean import TableFiles


def clean(
    tables: options.OptionalTables = None,
    older_than: Annotated[
        str, typer.Option(metavar="DURATION", help="The minimum age of a file. It must be at least one day.")
    ] = "3d",
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete the files. Without this option they are only listed.")
    ] = False,
    master: options.Master = options.DEFAULT_MASTER,
    server: options.Server = DEFAULT_TARGET,
    json: options.Json = False,
) -> None:
    """List or delete orphan files: files in the data folders of lake tables that no snapshot refers to.

    Killed tasks leave such files behind. The command lists but keeps the files of a running round, the files of a
    commit whose outcome is unknown, and all files in a folder that another lake table may share. It does not look at
    offsets files, which the server keeps.

    Without a name, the command looks at all tables and skips those that have no lake table yet. For a table that is
    named, this is an error.
    """
    grace = options.duration("--older-than", older_than)
    from fluss_tiering.lake.iceberg.orphans import check_grace  # noqa: PLC0415 - Spark, for this command only
    from fluss_tiering.spark.audit.clean import clean_table  # noqa: PLC0415

    check_grace(grace)
    infos = _chosen(server, tables, delete=delete)
    with spark_session(master) as spark:
        found = each_table(
            "looking for orphan files", infos, lambda each: clean_table(spark, each, grace=grace, delete=delete)
        )
    if tables:
        found = [
            each if each.tiered else replace(each, error=nothing_tiered(info).message)
            for info, each in zip(infos, found, strict=True)
        ]
    if json:
        output.print_json(_as_json(each) for each in found)
    else:
        _print(infos, found, delete=delete)
    raise typer.Exit(1 if any(each.error or each.not_deleted for each in found) else 0)


def _chosen(server: str, tables: list[TablePath] | None, *, delete: bool) -> list[TableInfo]:
    with TieringClient(server) as client:
        if delete:
            check_may_tier(client)
        paths = list(dict.fromkeys(tables)) if tables else [each.path for each in client.list_tiering_statuses()]
        return client.get_tables(paths) if paths else []


def _print(infos: list[TableInfo], found: list[TableFiles], *, delete: bool) -> None:
    for info, table in zip(infos, found, strict=True):
        for orphan in table.orphans:
            fate = _fate(orphan, table, delete=delete)
            output.print_sentence(f"{escape(orphan.location)} [dim]{escape(fate)}[/]")
        if table.orphans and not delete:
            output.print_sentence(f"{table.path}: use --delete to delete the files that may be deleted")
        if not table.tiered and table.error is None:
            output.print_progress(f"{table.path}: {skipped_text(info)}")
    examined = [table for table in found if table.tiered and table.error is None]
    if (examined or not found) and not any(table.orphans for table in examined):
        output.print_sentence("There are no orphan files of this age.")
    output.print_errors((str(each.path), each.error) for each in found if each.error)


def _fate(orphan: Orphan, table: TableFiles, *, delete: bool) -> str:
    if orphan.kept is not None:
        return f"kept: {orphan.kept}"
    if orphan.location in table.not_deleted:
        return "could not be deleted: see the log"
    return "deleted" if delete else "may be deleted"


def _as_json(found: TableFiles) -> dict[str, object]:
    return {
        "database_name": found.path.database,
        "table_name": found.path.table,
        "files": [
            {"location": each.location, "kept": each.kept, "deleted": each.location in found.deleted}
            for each in found.orphans
        ],
        "error": found.error,
    }
