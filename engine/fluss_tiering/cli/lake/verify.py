"""`fluss-tiering verify`: compare a lake table with its source table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from fluss_tiering.cli.common import options, output
from fluss_tiering.cli.common.options import with_options
from fluss_tiering.cli.lake.spark_session import spark_session
from fluss_tiering.cli.status_view import dropped_line_of
from fluss_tiering.client import DEFAULT_TARGET, TieringClient
from fluss_tiering.model.lake import nothing_tiered
from fluss_tiering.model.table import TableInfo
from fluss_tiering.model.table_options import KV_TTL
from fluss_tiering.spark.maintenance_options import VerifyOptions

if TYPE_CHECKING:
    from fluss_tiering.spark.audit.report import TableAudit


@with_options(VerifyOptions, ("limit", "newer_than"), behind="table")
def verify(
    table: options.Table,
    master: options.Master = options.DEFAULT_MASTER,
    server: options.Server = DEFAULT_TARGET,
    json: options.Json = False,
    **given: Any,
) -> None:
    """Compare the lake table of a table with the table itself.

    The exit code is 1 if they differ, or if nothing of the table is in the lake yet.

    The comparison uses the rows up to the offsets that the lake holds. Spark counts the rows of each bucket and adds up
    their hashes. If a bucket differs, its keys are compared, or its offsets for a log table. Nothing is locked, and
    writes may go on.

    Rows of a table with `table.kv.ttl` expire in Fluss without a changelog, and the lake keeps them. Rows that are only
    in the lake are then counted and are no difference, unless the log that was read deletes them. All rows that Fluss
    still has must be in the lake.

    The lake also keeps the rows of dropped partitions, which are not compared. If a partition was made again with the
    same name, the rows of the dropped one are differences. Records that were dropped before they were in the lake are
    in neither of the two: a line tells how many the server knows of.

    With --newer-than, only the rows that newer rounds have added to a log table are compared. Neither its whole log nor
    its whole lake table is read. What happened to older rows, or in maintenance, is not seen. If no snapshot of the
    lake table has that age, all rows are compared.
    """
    what = VerifyOptions(server, (table,), **given)
    from fluss_tiering.spark.audit.verify import verify_table  # noqa: PLC0415 - Spark and pyarrow, for this command only

    with TieringClient(server) as client:
        (info,) = client.get_tables([table])
        dropped = dropped_line_of(client, table)
        with spark_session(master) as spark, output.busy(f"{table}: comparing …"):
            audit = verify_table(client, spark, info, target=server, max_differences=what.limit, newer_than=what.age)
    if json:
        output.print_json([_as_json(info, audit)])
    else:
        _print(info, audit)
        if dropped is not None:
            output.print_warning(f"{dropped}. They are in neither of the two, and are not compared")
    raise typer.Exit(0 if audit.equal and not audit.was_never_tiered else 1)


def _print(info: TableInfo, audit: TableAudit) -> None:
    if audit.was_never_tiered:
        output.print_errors([(str(audit.path), nothing_tiered(info).message)])
        return
    from fluss_tiering.spark.audit.report import differing_text, equal_text  # noqa: PLC0415 - after the audit

    if audit.equal:
        output.print_sentence(f"{audit.path}: {equal_text(info, audit)}.")
    else:
        output.print_errors([(str(audit.path), differing_text(audit))])
    output.print_errors(
        (
            f"bucket {each.bucket}, {', '.join(f'{name} {value}' for name, value in each.key.items())}",
            f"{each.kind} ({each.source_rows} in the table, {each.lake_rows} in the lake)",
        )
        for each in audit.differences
    )
    if info.descriptor.partition_keys and any(each.lake_rows > each.source_rows for each in audit.differences):
        output.print_sentence(
            "Rows that are only in the lake may be those of a dropped partition: the lake keeps them, also if a "
            "partition is made again with the same name."
        )
    if audit.kv_ttl is not None:
        output.print_sentence(_expiry_text(audit))
    if audit.more_differences:
        output.print_sentence("There are more differences. Use --limit to list more of them.")


def _expiry_text(audit: TableAudit) -> str:
    count = sum(each.expired_rows for each in audit.buckets)
    return (
        f"Rows of this table expire in Fluss without a changelog ({KV_TTL}={audit.kv_ttl}), and the lake keeps them. "
        f"Rows that are only in the lake and may have expired: {count}."
    )


def _plain(value: object) -> object:
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _as_json(info: TableInfo, audit: TableAudit) -> dict[str, object]:
    return {
        "database_name": audit.path.database,
        "table_name": audit.path.table,
        "lake_snapshot_id": audit.lake_snapshot_id,
        "after_snapshot_id": audit.after_snapshot_id,
        "equal": audit.equal,
        "buckets": [
            {
                "bucket": each.bucket,
                "log_end_offset": each.log_end_offset,
                "equal": each.equal,
                "source_rows": each.source.rows,
                "lake_rows": each.lake.rows,
                "source_checksum": each.source.hex_checksum,
                "lake_checksum": each.lake.hex_checksum,
                "expired_rows": each.expired_rows,
            }
            for each in audit.buckets
        ],
        "differences": [
            {
                "bucket": each.bucket,
                "kind": each.kind.value,
                "key": {name: _plain(value) for name, value in each.key.items()},
                "source_rows": each.source_rows,
                "lake_rows": each.lake_rows,
            }
            for each in audit.differences
        ],
        "more_differences": audit.more_differences,
        "kv_ttl": audit.kv_ttl,
        "error": nothing_tiered(info).message if audit.was_never_tiered else None,
    }
