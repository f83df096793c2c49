"""The progress of an application's rounds: bars in a terminal, plain lines in a log."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Final, Protocol, Self

from humanize import naturalsize
from pyspark import SparkContext
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress
from rich.table import Column

from fluss_tiering.model.closing import Closing
from fluss_tiering.model.table import TablePath
from fluss_tiering.plural import counted
from fluss_tiering.spark.round.plan import LogPiece, Piece, SnapshotPiece
from fluss_tiering.spark.round.result import TableResult

_POLL_S: Final = 0.5
_MAX_BARS: Final = 20
"""With more tables than these, the bar of a table goes away when its round has ended."""

logger = logging.getLogger("fluss_tiering")


class Progress(Protocol):
    """Hears of each step of each table, from several threads. It is a context manager around the application's work."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    def step(self, path: TablePath, what: str) -> None:
        """Hear which step the table's round does now."""
        ...

    def stage(self, path: TablePath, group: str, tasks: int, pieces: Sequence[Piece]) -> None:
        """Hear that the round's Spark stage begins, and what it reads."""
        ...

    def done(self, result: TableResult) -> None:
        """Hear the outcome of the table."""
        ...

    def note(self, path: TablePath, what: str) -> None:
        """Hear what was done with the table beside its rounds, in one line."""
        ...

    def drained(self, done: int, total: int, text: str) -> None:
        """Hear how far a drain of several tables is: the tables that are done, all tables, and more in words."""
        ...


class LogProgress(Closing):
    """Writes one line for each step.

    Args:
        write: Writes a line; None to log it.
        with_errors: Whether the line of a failure has its reason. A command that ends soon shows the reasons itself.
    """

    def __init__(self, write: Callable[[str], None] | None = None, *, with_errors: bool = True) -> None:
        self._write = write or logger.info
        self._write_error = write or logger.error
        self._with_errors = with_errors

    def close(self) -> None:
        """Do nothing, since each line is written at once."""

    def step(self, path: TablePath, what: str) -> None:
        """Write the step."""
        self._write(f"{path}: {what}")

    def stage(self, path: TablePath, group: str, tasks: int, pieces: Sequence[Piece]) -> None:
        """Write the stage."""
        in_tasks = f"in {counted(tasks, 'task')} (Spark job group {group})"
        self._write(f"{path}: reading and writing {amount_text(pieces)} {in_tasks}")

    def done(self, result: TableResult) -> None:
        """Write the outcome."""
        if result.failed and not self._with_errors:
            self._write(f"{result.path}: {result.state}")
        else:
            (self._write_error if result.failed else self._write)(f"{result.path}: {outcome_text(result)}")

    def note(self, path: TablePath, what: str) -> None:
        """Write the line."""
        self._write(f"{path}: {what}")

    def drained(self, done: int, total: int, text: str) -> None:
        """Write how far the drain is."""
        self._write(f"{done:,} of {total:,} tables done, {text}")


class TerminalProgress(Closing):
    """Shows a bar for each table, which grows as Spark's tasks end.

    A bar ends with the outcome, but without an error: errors are long, and the caller shows them.

    Args:
        context: The Spark context that runs the tasks.
        console: The terminal; None for standard error, since results go to standard output.
    """

    def __init__(self, context: SparkContext, console: Console | None = None) -> None:
        console = console or Console(stderr=True)
        self._tracker = context.statusTracker()
        self._bars = RichProgress(
            SpinnerColumn(),
            # Only texts are broken over lines where a terminal is narrow.
            TextColumn("[bold]{task.fields[table]}", table_column=Column(overflow="fold")),
            BarColumn(bar_width=min(40, console.width // 8)),
            MofNCompleteColumn(),
            TextColumn("{task.description}", table_column=Column(overflow="fold")),
            TimeElapsedColumn(),
            console=console,
        )
        self._tasks: dict[TablePath, TaskID] = {}
        self._all: TaskID | None = None
        self._groups: dict[TablePath, str] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="fluss-tiering-progress", daemon=True)

    def __enter__(self) -> Self:
        self._bars.start()
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop updating the bars."""
        self._closed.set()
        self._thread.join()
        if self._all is not None:
            # The bar was last told up to ten seconds ago.
            self._bars.update(self._all, visible=False)
        self._bars.stop()

    def step(self, path: TablePath, what: str) -> None:
        """Show the step next to the table's bar."""
        with self._lock:
            self._groups.pop(path, None)
        self._bars.update(self._task(path), description=what, visible=True)

    def stage(self, path: TablePath, group: str, tasks: int, pieces: Sequence[Piece]) -> None:
        """Set the length of the table's bar."""
        self._bars.update(self._task(path), description=f"reading and writing {amount_text(pieces)}", total=tasks)
        with self._lock:
            self._groups[path] = group

    def done(self, result: TableResult) -> None:
        """Fill the bar, or show that the round failed."""
        with self._lock:
            self._groups.pop(result.path, None)
        task = self._task(result.path)
        total = self._bars.tasks[self._bars.task_ids.index(task)].total or 1
        colour = "red" if result.failed else "green"
        self._bars.update(task, total=total, description=f"[{colour}]{_short_outcome(result)}")
        if not result.failed:
            self._bars.update(task, completed=total)
        self._bars.stop_task(task)
        if len(self._tasks) > _MAX_BARS:
            # Rich shows as many bars as fit, the first ones: those of running rounds come later.
            self._bars.update(task, visible=False)

    def drained(self, done: int, total: int, text: str) -> None:
        """Show how far the drain is in a bar of its own."""
        if self._all is None:
            self._all = self._bars.add_task("", table="all tables")
        self._bars.update(self._all, completed=done, total=total, description=text)

    def note(self, path: TablePath, what: str) -> None:
        """Print the line above the bars."""
        self._bars.console.print(f"{path}: {what}", markup=False, emoji=False, highlight=False, soft_wrap=True)

    def _task(self, path: TablePath) -> TaskID:
        with self._lock:
            if path not in self._tasks:
                self._tasks[path] = self._bars.add_task("", total=None, table=str(path))
            return self._tasks[path]

    def _poll(self) -> None:
        while not self._closed.wait(_POLL_S):
            with self._lock:
                groups = dict(self._groups)
            for path, completed in self._completed(groups).items():
                self._bars.update(self._task(path), completed=completed)

    def _completed(self, groups: Mapping[TablePath, str]) -> dict[TablePath, int]:
        completed = {}
        for path, group in groups.items():
            jobs = [self._tracker.getJobInfo(job) for job in self._tracker.getJobIdsForGroup(group)]
            stages = [self._tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
            completed[path] = sum(stage.numCompletedTasks for stage in stages if stage)
        return completed


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


def _short_outcome(result: TableResult) -> str:
    if result.failed:
        return result.outcome
    if result.stats.lake_snapshot_id is None:
        return f"{result.state}, nothing new"
    rest = "" if result.complete else ", more is due"
    return f"{result.state}: {counted(result.stats.rows, 'row')} in {counted(result.stats.files, 'file')}{rest}"
