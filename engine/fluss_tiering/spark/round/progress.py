"""The progress of an application's rounds, line by line."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from humanize import naturalsize

from fluss_tiering.model.table import TablePath
from fluss_tiering.plural import counted
from fluss_tiering.spark.round.plan import LogPiece, Piece, SnapshotPiece
from fluss_tiering.spark.round.result import TableResult

logger = logging.getLogger("fluss_tiering")


class Progress:
    """Writes one line for each step of each table. It hears of them from several threads.

    Args:
        write: Writes a line; None to log it.
        with_errors: Whether the line of a failure has its reason. A command that ends soon shows the reasons itself.
    """

    def __init__(self, write: Callable[[str], None] | None = None, *, with_errors: bool = True) -> None:
        self._write = write or logger.info
        self._write_error = write or logger.error
        self._with_errors = with_errors

    def step(self, path: TablePath, what: str) -> None:
        """Hear which step the table's round does now."""
        self._write(f"{path}: {what}")

    def stage(self, path: TablePath, group: str, tasks: int, pieces: Sequence[Piece]) -> None:
        """Hear that the round's Spark stage begins, and what it reads."""
        in_tasks = f"in {counted(tasks, 'task')} (Spark job group {group})"
        self._write(f"{path}: reading and writing {amount_text(pieces)} {in_tasks}")

    def done(self, result: TableResult) -> None:
        """Hear the outcome of the table."""
        if result.failed and not self._with_errors:
            self._write(f"{result.path}: {result.state}")
        else:
            (self._write_error if result.failed else self._write)(f"{result.path}: {outcome_text(result)}")

    def note(self, path: TablePath, what: str) -> None:
        """Hear what was done with the table beside its rounds, in one line."""
        self._write(f"{path}: {what}")

    def drained(self, done: int, total: int, text: str) -> None:
        """Hear how far a drain is: the tables that are done, all tables, and more in words."""
        self._write(f"{done:,} of {total:,} tables done, {text}")


def amount_text(pieces: Sequence[Piece]) -> str:
    """Return how much a stage reads, such as `1,200 log records and 2 KV snapshots, 85.2 MiB`."""
    records = sum(piece.end_offset - piece.start_offset for piece in pieces if isinstance(piece, LogPiece))
    snapshots = len({piece.bucket for piece in pieces if isinstance(piece, SnapshotPiece)})
    size = naturalsize(sum(piece.size_bytes for piece in pieces), binary=True)
    what = [counted(number, noun) for number, noun in ((records, "log record"), (snapshots, "KV snapshot")) if number]
    return f"{' and '.join(what)}, {size}"


def outcome_text(result: TableResult) -> str:
    """Return the outcome of a table in one line."""
    if result.failed:
        return f"{result.outcome}: {result.error}"
    if result.stats.lake_snapshot_id is None:
        return f"{result.state}, nothing new ({result.seconds:.1f} s)"
    rest = "" if result.complete else ", more is due"
    return (
        f"{result.state}: {counted(result.stats.rows, 'row')} in {counted(result.stats.files, 'file')}, lake snapshot "
        f"{result.stats.lake_snapshot_id} ({result.seconds:.1f} s){rest}"
    )
