"""`fluss-tiering maintain`: do what is worth doing for lake tables, or only say what that is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.markup import escape

from fluss_tiering.cli.common import options, output
from fluss_tiering.cli.common.options import with_options
from fluss_tiering.cli.lake.maintenance import named, print_results
from fluss_tiering.cli.lake.spark_session import each_table, spark_session
from fluss_tiering.client import DEFAULT_TARGET, TieringClient
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.lake import nothing_tiered, skipped_text
from fluss_tiering.model.table import TableInfo, TablePath
from fluss_tiering.spark.maintenance_options import MaintainOptions
from fluss_tiering.spark.startup.checks import check_may_tier

if TYPE_CHECKING:
    from fluss_tiering.spark.maintenance.maintain import Maintenance
    from fluss_tiering.spark.maintenance.plan import Plan

_OPTIONS: Final = ("all_tables", "dry_run", "max_bytes", "cores", "min_input_files", "delete_files")
"""Fields of `MaintainOptions` that are options of the command, too, in the order of its help."""
_NOTHING_THERE: Final = "There is no lake table to maintain."


@with_options(MaintainOptions, _OPTIONS, behind="tables")
def maintain(
    tables: Annotated[
        list[TablePath] | None,
        typer.Argument(parser=TablePath.parse, metavar="DATABASE.TABLE", help="The tables.", show_default=False),
    ] = None,
    master: options.Master = options.DEFAULT_MASTER,
    server: options.Server = DEFAULT_TARGET,
    json: options.Json = False,
    **given: Any,
) -> None:
    """Maintain lake tables: do what is worth doing of compact, expire and clean, and merge manifests.

    Without names, the command maintains the tables whose options table.datalake.auto-compaction,
    table.datalake.auto-expire-snapshot and table.datalake.record-level.expire-time ask for it. Named tables are
    maintained whatever the first two say. Rounds and readers may run at the same time.

    Tables that have no lake table yet are skipped. For a table that is named, this is an error.
    """
    what = MaintainOptions(server, tuple(dict.fromkeys(tables or ())), **given)
    from fluss_tiering.spark.maintenance.maintain import maintain_table  # noqa: PLC0415 - Spark, for this command only
    from fluss_tiering.spark.maintenance.plan import plan_table, tables_to_maintain  # noqa: PLC0415
    from fluss_tiering.spark.maintenance.words import done_text, limits_of  # noqa: PLC0415

    limits = limits_of(what)
    with TieringClient(server) as client:
        chosen = tables_to_maintain(client, what.tables, everything=what.all_tables)
        if not chosen:
            output.print_nothing(
                "No table has an option that asks for maintenance: name tables, or give --all.", as_json=json
            )
            raise typer.Exit(0)
        if not what.dry_run:
            check_may_tier(client)
        infos, steps = [table for table, _ in chosen], {table.path: each for table, each in chosen}
        with spark_session(master) as spark:
            if what.dry_run:
                _show_plans(
                    infos,
                    bool(tables),
                    lambda each: plan_table(client, spark, each, steps[each.path], limits, with_merges=True),
                    as_json=json,
                )
                return
            found = each_table(
                "maintaining",
                infos,
                lambda each: maintain_table(client, spark, each, steps=steps[each.path], limits=limits),
            )
    if tables:
        found = [
            replace(each, error=nothing_tiered(info).message) if each.was_never_tiered else each
            for info, each in zip(infos, found, strict=True)
        ]
    for info, each in zip(infos, found, strict=True):
        if each.was_never_tiered:
            output.print_progress(f"{each.path}: {skipped_text(info)}")
    shown = found if json else [each for each in found if not each.was_never_tiered]
    if not shown:
        output.print_sentence(_NOTHING_THERE)
    print_results(shown, done_text, maintenance_as_json, as_json=json)


def _show_plans(
    tables: list[TableInfo], were_named: bool, plan: Callable[[TableInfo], Plan | None], *, as_json: bool
) -> None:
    """Print what would be done with each table. The exit code is 1 if a table cannot be read, or has no lake table.

    Tables without a lake table are skipped if they were not named.
    """
    from fluss_tiering.spark.maintenance.words import planned_text  # noqa: PLC0415 - Spark, for this command only

    plans: dict[TablePath, Plan | None] = {}
    errors: dict[TablePath, str] = {}
    for table in tables:
        try:
            with output.busy(f"{table.path}: planning …"):
                found = plan(table)
            if found is None and were_named:
                raise nothing_tiered(table)
        except FlussTieringError as error:
            errors[table.path] = error.message
            continue
        plans[table.path] = found
        if found is None:
            output.print_progress(f"{table.path}: {skipped_text(table)}")
    if as_json:
        output.print_json(
            [
                *(_plan_as_json(path, each) for path, each in plans.items()),
                *({**named(path), "error": error} for path, error in errors.items()),
            ]
        )
    else:
        if not errors and not any(plans.values()):
            output.print_sentence(_NOTHING_THERE)
        for path, each in plans.items():
            if each is not None:
                output.print_sentence(escape(f"{path}: {planned_text(each)}."))
        output.print_errors((str(path), error) for path, error in errors.items())
    raise typer.Exit(1 if errors else 0)


def _plan_as_json(path: TablePath, plan: Plan | None) -> dict[str, object]:
    if plan is None:
        return {**named(path), "tiered": False, "error": None}
    return {
        **named(path),
        "tiered": True,
        "data_files": plan.files.data_files,
        "delete_files": plan.files.delete_files,
        "position_deletes": plan.files.position_deletes,
        "file_bytes": plan.files.file_bytes,
        "manifests": plan.manifests,
        "snapshots": plan.snapshots,
        "metadata_files": plan.metadata_files,
        "records_to_expire": plan.expired_records,
        "files_to_rewrite": sum(group.files for group in plan.groups),
        "bytes_to_rewrite": sum(group.bytes for group in plan.groups),
        "deletes_to_apply": sum(group.deletes for group in plan.groups),
        "fewer_files": plan.fewer_files,
        "position_delete_files_to_merge": plan.deletes_to_merge,
        "fewer_position_delete_files": plan.fewer_deletes,
        "fewer_manifests": plan.fewer_manifests,
        "snapshots_to_expire": len(plan.expirable.free),
        "groups_left": plan.groups_left,
        "note": plan.note,
        "error": None,
    }


def maintenance_as_json(found: Maintenance) -> dict[str, object]:
    """Return what maintenance of a lake table did, as JSON has it, without the name of the table."""
    return {
        "expired_records": found.expired_records,
        "rewritten_files": found.rewritten.files,
        "rewritten_bytes": found.rewritten.bytes,
        "added_files": found.rewritten.new_files,
        "removed_delete_files": found.rewritten.delete_files,
        "fewer_manifests": found.fewer_manifests,
        "expired": found.expired,
        "deleted_files": found.deleted_files,
        "deleted_orphans": found.orphans,
        "conflicts": found.conflicts,
        "seconds": round(found.seconds, 3),
        "error": found.error,
    }
