"""`fluss-tiering compact`: rewrite small files and files with deletes of lake tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from fluss_tiering.cli.common import options, output
from fluss_tiering.cli.common.output import Heading
from fluss_tiering.cli.lake.derived_options import with_options
from fluss_tiering.cli.lake.spark_session import each_table, spark_session
from fluss_tiering.client import DEFAULT_TARGET, TieringClient
from fluss_tiering.spark.maintenance_options import CompactOptions
from fluss_tiering.spark.startup.rights import check_may_tier

if TYPE_CHECKING:
    from fluss_tiering.spark.maintenance.compact import Compaction


@with_options(CompactOptions, ("min_input_files", "delete_files"), behind="tables")
def compact(
    tables: options.Tables,
    master: options.Master = options.DEFAULT_MASTER,
    server: options.Server = DEFAULT_TARGET,
    json: options.Json = False,
    **given: Any,
) -> None:
    """Compact lake tables: rewrite small files, and files whose rows were deleted or changed.

    Rounds and readers may run at the same time. The old files stay until `fluss-tiering expire` removes the snapshots
    that refer to them. Readers of Fluss see the new files after the next round.
    """
    what = CompactOptions(server, tuple(dict.fromkeys(tables)), **given)
    from fluss_tiering.spark.maintenance.compact import (  # noqa: PLC0415 - Spark, for this command only
        CompactionOptions,
        compact_table,
    )

    with TieringClient(server) as client:
        infos = client.get_tables(what.tables)
        check_may_tier(client)
    wanted = CompactionOptions(min_input_files=what.min_input_files, delete_files=what.delete_files)
    with spark_session(master) as spark:
        found = each_table("compacting", infos, lambda each: compact_table(spark, each, wanted))
    if json:
        output.print_json(_as_json(each) for each in found)
    else:
        _print(found)
    raise typer.Exit(1 if any(each.error for each in found) else 0)


def _print(found: list[Compaction]) -> None:
    output.print_table(
        None,
        [
            Heading("Table"),
            Heading("Data files", numeric=True),
            Heading("Delete files", numeric=True),
            Heading("Size", numeric=True),
            Heading("Rewritten", numeric=True),
            Heading("Seconds", numeric=True),
        ],
        (
            [
                str(each.path),
                *(
                    [
                        f"{each.before.data_files:,} → {each.after.data_files:,}",
                        f"{each.before.delete_files:,} → {each.after.delete_files:,}",
                        f"{output.bytes_cell(each.before.file_bytes)} → {output.bytes_cell(each.after.file_bytes)}",
                        output.bytes_cell(each.rewritten_bytes),
                    ]
                    if each.before and each.after
                    else [output.NOTHING] * 4
                ),
                f"{each.seconds:.1f}",
            ]
            for each in found
        ),
        empty="",
    )
    output.print_errors((str(each.path), each.error) for each in found if each.error)


def _as_json(found: Compaction) -> dict[str, object]:
    sides = {"before": found.before, "after": found.after}
    counts = {
        f"{name}_{side}": None if files is None else getattr(files, name)
        for name in ("data_files", "delete_files", "file_bytes")
        for side, files in sides.items()
    }
    return {
        "database_name": found.path.database,
        "table_name": found.path.table,
        **counts,
        "rewritten_files": found.rewritten_files,
        "rewritten_bytes": found.rewritten_bytes,
        "added_files": found.added_files,
        "conflicts": found.conflicts,
        "seconds": round(found.seconds, 3),
        "error": found.error,
    }
