"""`fluss-tiering compact`, `expire` and `publish`: single steps with lake tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import typer
from rich.markup import escape

from fluss_tiering.cli.common import options, output
from fluss_tiering.cli.common.options import with_options
from fluss_tiering.cli.lake.spark_session import each_table, spark_session
from fluss_tiering.client import DEFAULT_TARGET, TieringClient
from fluss_tiering.model.table import TableInfo, TablePath
from fluss_tiering.spark.maintenance_options import CompactOptions, ExpireOptions, PublishOptions
from fluss_tiering.spark.startup.checks import check_may_tier

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fluss_tiering.spark.maintenance.compact import Compaction


class Result(Protocol):
    """What a step did with a lake table."""

    @property
    def path(self) -> TablePath:
        """The table."""

    @property
    def seconds(self) -> float:
        """How long it took."""

    @property
    def error(self) -> str | None:
        """The reason of a failure; None if it worked."""


ResultT = TypeVar("ResultT", bound=Result)


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
    from fluss_tiering.spark.maintenance.compact import compact_table  # noqa: PLC0415 - Spark, for this command only
    from fluss_tiering.spark.maintenance.words import compacted_text  # noqa: PLC0415

    found = _each(
        what,
        master,
        "compacting",
        lambda client, spark, table: compact_table(
            spark, table, min_input_files=what.min_input_files, delete_files=what.delete_files
        ),
    )
    print_results(found, compacted_text, _compaction_as_json, as_json=json)


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
    from fluss_tiering.spark.maintenance.expire import expire_snapshots  # noqa: PLC0415 - Spark, for this command only
    from fluss_tiering.spark.maintenance.words import expired_text  # noqa: PLC0415

    found = _each(
        what,
        master,
        "expiring snapshots",
        lambda client, spark, table: expire_snapshots(
            client, spark, table, older_than=what.age, retain_last=what.retain_last
        ),
    )
    print_results(found, expired_text, _fields("expired", "kept", "needed", "deleted_files"), as_json=json)


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
    from fluss_tiering.spark.maintenance.publish import publish_table  # noqa: PLC0415 - Spark, for this command only
    from fluss_tiering.spark.maintenance.words import published_text  # noqa: PLC0415

    found = _each(
        what,
        master,
        "publishing",
        lambda client, spark, table: publish_table(client, spark, table, snapshot=what.snapshot, tag=what.tag),
    )
    fields = ("branch", "snapshot_id", "rounds", "rows", "tag", "known")
    print_results(found, published_text, _fields(*fields), as_json=json)


def _each(
    what: CompactOptions | ExpireOptions | PublishOptions,
    master: str,
    doing: str,
    do: Callable[[TieringClient, SparkSession, TableInfo], ResultT],
) -> list[ResultT]:
    with TieringClient(what.server) as client:
        infos = client.get_tables(what.tables)
        check_may_tier(client)
        with spark_session(master) as spark:
            return each_table(doing, infos, lambda each: do(client, spark, each))


def print_results(
    found: Sequence[ResultT],
    text: Callable[[ResultT], str],
    values: Callable[[ResultT], dict[str, object]],
    *,
    as_json: bool,
) -> None:
    """Print a line for each result, or JSON. The exit code is 1 if one of them failed."""
    if as_json:
        output.print_json(
            {**named(each.path), **values(each), "seconds": round(each.seconds, 3), "error": each.error}
            for each in found
        )
    else:
        for each in found:
            if each.error is None:
                output.print_sentence(escape(f"{each.path}: {text(each)}."))
        output.print_errors((str(each.path), each.error) for each in found if each.error)
    raise typer.Exit(1 if any(each.error for each in found) else 0)


def named(path: TablePath) -> dict[str, object]:
    """Return the names of a table, as JSON has them."""
    return {"database_name": path.database, "table_name": path.table}


def _fields(*names: str) -> Callable[[Result], dict[str, object]]:
    return lambda found: {name: getattr(found, name) for name in names}


def _compaction_as_json(found: Compaction) -> dict[str, object]:
    sides = {"before": found.before, "after": found.after}
    counts = {
        f"{name}_{side}": None if files is None else getattr(files, name)
        for name in ("data_files", "delete_files", "file_bytes")
        for side, files in sides.items()
    }
    return {**counts, **_fields("rewritten_files", "rewritten_bytes", "added_files", "conflicts")(found)}
