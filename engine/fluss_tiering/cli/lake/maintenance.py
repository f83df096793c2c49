"""`fluss-tiering compact`, `expire` and `publish`: single steps with lake tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import typer
from rich.markup import escape

from fluss_tiering.cli.common import options, output
from fluss_tiering.cli.common.options import with_options
from fluss_tiering.cli.common.output import Heading
from fluss_tiering.cli.lake.spark_session import each_table, spark_session
from fluss_tiering.client import DEFAULT_TARGET, TieringClient
from fluss_tiering.model.table import TablePath
from fluss_tiering.spark.maintenance_options import CompactOptions, ExpireOptions, PublishOptions
from fluss_tiering.spark.startup.checks import check_may_tier

if TYPE_CHECKING:
    from fluss_tiering.spark.maintenance.compact import Compaction
    from fluss_tiering.spark.maintenance.expire import Expiry


class _Result(Protocol):
    @property
    def path(self) -> TablePath: ...

    @property
    def seconds(self) -> float: ...

    @property
    def error(self) -> str | None: ...


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
        output.print_json(_compaction_as_json(each) for each in found)
    else:
        headings = [Heading(each, numeric=True) for each in ("Data files", "Delete files", "Size", "Rewritten")]
        _print_results(found, headings, [_compaction_cells(each) for each in found])
    _exit(found)


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
        output.print_json(_as_json(each, "expired", "kept", "needed", "deleted_files") for each in found)
    else:
        headings = [Heading(each, numeric=True) for each in ("Expired", "Kept", "Files deleted")]
        _print_results(found, headings, [_expiry_cells(each) for each in found])
        for each in found:
            print_kept(each.path, each.needed)
    _exit(found)


@with_options(PublishOptions, ("snapshot", "tag"), behind="tables")
def publish(
    tables: options.Tables,
    master: options.Master = options.DEFAULT_MASTER,
    server: options.Server = DEFAULT_TARGET,
    json: options.Json = False,
    **given: Any,
) -> None:
    """Let the readers of lake tables see what rounds have committed to another branch than main.

    The table option `table.datalake.commit-branch` sends rounds to a branch. This command moves main forward to what is
    there, in one commit, and tells Fluss of it. Rounds may run at the same time. To publish again what was published
    changes nothing.
    """
    what = PublishOptions(server, tuple(dict.fromkeys(tables)), **given)
    from fluss_tiering.spark.maintenance.publish import (  # noqa: PLC0415 - Spark, for this command only
        publish_table,
        published_text,
    )

    with TieringClient(server) as client:
        infos = client.get_tables(what.tables)
        check_may_tier(client)
        with spark_session(master) as spark:
            found = each_table(
                "publishing",
                infos,
                lambda each: publish_table(client, spark, each, snapshot=what.snapshot, tag=what.tag),
            )
    if json:
        fields = ("branch", "snapshot_id", "rounds", "rows", "tag", "known")
        output.print_json(_as_json(each, *fields) for each in found)
    else:
        for each in found:
            if each.error is None:
                output.print_sentence(f"{each.path}: {escape(published_text(each))}.")
        output.print_errors((str(each.path), each.error) for each in found if each.error)
    _exit(found)


def print_kept(path: TablePath, needed: int) -> None:
    """Print how many old snapshots are kept nevertheless, if any.

    Args:
        path: The table.
        needed: The number of old snapshots that must be kept.
    """
    if needed:
        kept = "1 old snapshot is" if needed == 1 else f"{needed:,} old snapshots are"
        output.print_sentence(f"{path}: {kept} kept for Fluss's readers or for recovery")


def _print_results(found: Sequence[_Result], headings: Sequence[Heading], cells: Sequence[Sequence[str]]) -> None:
    """Print a table of results, each with the name of its table, and with how long it took.

    Args:
        found: The results.
        headings: The titles of the columns between the two.
        cells: The cells of these columns, for each result. There are none for one that failed.
    """
    output.print_table(
        None,
        [Heading("Table"), *headings, Heading("Seconds", numeric=True)],
        (
            [str(each.path), *(row or [output.NOTHING] * len(headings)), f"{each.seconds:.1f}"]
            for each, row in zip(found, cells, strict=True)
        ),
        empty="",
    )
    output.print_errors((str(each.path), each.error) for each in found if each.error)


def _exit(found: Sequence[_Result]) -> None:
    raise typer.Exit(1 if any(each.error for each in found) else 0)


def _as_json(found: _Result, *fields: str, **values: object) -> dict[str, object]:
    return {
        "database_name": found.path.database,
        "table_name": found.path.table,
        **values,
        **{name: getattr(found, name) for name in fields},
        "seconds": round(found.seconds, 3),
        "error": found.error,
    }


def _compaction_cells(found: Compaction) -> list[str]:
    if not found.before or not found.after:
        return []
    return [
        f"{found.before.data_files:,} → {found.after.data_files:,}",
        f"{found.before.delete_files:,} → {found.after.delete_files:,}",
        f"{output.bytes_cell(found.before.file_bytes)} → {output.bytes_cell(found.after.file_bytes)}",
        output.bytes_cell(found.rewritten_bytes),
    ]


def _compaction_as_json(found: Compaction) -> dict[str, object]:
    sides = {"before": found.before, "after": found.after}
    counts = {
        f"{name}_{side}": None if files is None else getattr(files, name)
        for name in ("data_files", "delete_files", "file_bytes")
        for side, files in sides.items()
    }
    return _as_json(found, "rewritten_files", "rewritten_bytes", "added_files", "conflicts", **counts)


def _expiry_cells(found: Expiry) -> list[str]:
    return [] if found.error else [f"{count:,}" for count in (found.expired, found.kept, found.deleted_files)]
