"""`fluss-tiering repair`: mend files of lake tables with wrong bounds or wrong physical types."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer
from rich.markup import escape

from fluss_tiering.cli.common import options, output
from fluss_tiering.cli.common.output import Heading
from fluss_tiering.cli.lake.spark_session import each_table, spark_session
from fluss_tiering.cli.lake.verify import wrong_file_as_json, wrong_file_text
from fluss_tiering.client import DEFAULT_TARGET, TieringClient
from fluss_tiering.spark.startup.rights import check_may_tier

if TYPE_CHECKING:
    from fluss_tiering.spark.maintenance.repair import Repair


def repair(
    tables: options.Tables,
    master: options.Master = options.DEFAULT_MASTER,
    server: options.Server = DEFAULT_TARGET,
    json: options.Json = False,
) -> None:
    """Mend files of lake tables whose bounds or physical types are wrong, so that readers may miss rows in them.

    `fluss-tiering verify` names such files. Bounds are mended in the metadata alone. A file with wrong physical types
    is written again. No row changes, and rounds and readers may run at the same time.
    """
    from fluss_tiering.spark.maintenance.repair import repair_table  # noqa: PLC0415 - Spark, for this command only

    with TieringClient(server) as client:
        infos = client.get_tables(list(dict.fromkeys(tables)))
        check_may_tier(client)
    with spark_session(master) as spark:
        done = each_table("repairing", infos, lambda table: repair_table(spark, table))
    if json:
        output.print_json(_as_json(each) for each in done)
    else:
        _print(done)
    raise typer.Exit(1 if any(each.error for each in done) else 0)


def _print(done: list[Repair]) -> None:
    output.print_table(
        None,
        [
            Heading("Table"),
            Heading("Files checked", numeric=True),
            Heading("Wrong", numeric=True),
            Heading("Given right bounds", numeric=True),
            Heading("Written again", numeric=True),
            Heading("Seconds", numeric=True),
        ],
        (
            [
                str(each.path),
                *(
                    [output.NOTHING] * 4
                    if each.error
                    else [
                        f"{count:,}"
                        for count in (
                            each.checked_files,
                            len(each.wrong_files),
                            each.rebound_files,
                            each.rewritten_files,
                        )
                    ]
                ),
                f"{each.seconds:.1f}",
            ]
            for each in done
        ),
        empty="",
    )
    for each in done:
        for file in each.wrong_files:
            output.print_sentence(escape(f"{file.location}: {wrong_file_text(file)}"))
    output.print_errors((str(each.path), each.error) for each in done if each.error)


def _as_json(done: Repair) -> dict[str, object]:
    return {
        "database_name": done.path.database,
        "table_name": done.path.table,
        "checked_files": done.checked_files,
        "wrong_files": [wrong_file_as_json(each) for each in done.wrong_files],
        "rebound_files": done.rebound_files,
        "rewritten_files": done.rewritten_files,
        "conflicts": done.conflicts,
        "seconds": round(done.seconds, 3),
        "error": done.error,
    }
