"""A drain: one application tiers all pending tables, round after round, until none is pending or its time is over."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Protocol, Self

from humanize import naturalsize

from fluss_tiering.client import TieringClient
from fluss_tiering.model.closing import Closing
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import StatusChanges, TieringState
from fluss_tiering.plural import counted
from fluss_tiering.spark.retry import Retry
from fluss_tiering.spark.round.result import TableResult

_LOOK_S: Final = 1.0
"""The time between two looks at the clock while nothing happens."""
REST_S: Final = 1.0
"""How long a table rests after a round that found nothing new. A freshness of 0 makes it Pending again at once."""
TELL_S: Final = 10.0
"""The time between two lines that say how far a drain is."""
_LONGEST: Final = 3
"""The number of rounds that such a line names."""
_MAX_REST_S: Final = 60.0
"""How long a table rests at most after claims that the server refused. It stays Pending, and rests twice as long each
time."""


@dataclass(frozen=True, slots=True)
class DrainLimits:
    """How far a drain goes.

    Attributes:
        concurrency: How many tables are tiered at the same time.
        time_budget_s: The time in seconds after which no round begins; None for no limit.
        follow: Whether the drain waits for more when no table is pending.
    """

    concurrency: int
    time_budget_s: float | None = None
    follow: bool = False


class DrainCount:
    """Counts the work of a drain since it last had none, for a line that says how far it is.

    Args:
        tell: Takes the tables that are done, all tables, and what was written and which rounds take longest, in words.
        clock: Returns the time in seconds.
    """

    def __init__(self, tell: Callable[[int, int, str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._tell = tell
        self._clock = clock
        self._next = clock() + TELL_S
        self._began: dict[TablePath, float] = {}
        self._reset()

    def begin(self, path: TablePath) -> None:
        """Count a round that begins."""
        self._began[path] = self._clock()

    def end(self, path: TablePath, result: TableResult | None) -> None:
        """Count a round that has ended, with its result; None if another driver has the table."""
        del self._began[path]
        self._done.add(path)
        if result is not None:
            self._rows += result.stats.rows
            self._bytes += result.stats.bytes

    def look(self, pending: Callable[[], Collection[TablePath]]) -> None:
        """Tell how far the drain is, if it is time to. A drain without work begins to count anew."""
        if not self._began and not pending():
            self._reset()
        if (now := self._clock()) < self._next:
            return
        self._next = now + TELL_S
        left = self._began.keys() | pending()
        total = len(self._done | left)
        if self._began and total > 1:
            self._tell(len(self._done - left), total, self._text(now))

    def _text(self, now: float) -> str:
        longest = sorted(self._began, key=self._began.__getitem__)[:_LONGEST]
        rounds = ", ".join(f"{path} {now - self._began[path]:.0f} s" for path in longest)
        return f"{counted(self._rows, 'row')}, {naturalsize(self._bytes, binary=True)}; longest running: {rounds}"

    def _reset(self) -> None:
        self._done: set[TablePath] = set()
        self._rows = self._bytes = 0


class IdleWork(Protocol):
    """What a drain does while it has nothing to tier. Neither call waits for anything."""

    def begin_if_due(self) -> None:
        """Begin some of the work, in a thread of its own, if any is due and none is under way."""
        ...

    def give_way(self) -> None:
        """End the work as soon as possible, if any is under way."""
        ...


class Drain:
    """Tiers pending tables. Those that wait longest come first, and a table is tiered by one thread at a time.

    Args:
        tier: Runs one round of a table. It returns None if another driver has taken the table.
        limits: How far the drain goes.
        idle_work: What is done while no table is pending and no round runs; None for nothing.
        tell: Takes how far the drain is, every ten seconds (`DrainCount`).
    """

    def __init__(
        self,
        pending: PendingTables,
        tier: Callable[[TablePath], TableResult | None],
        limits: DrainLimits,
        idle_work: IdleWork | None = None,
        tell: Callable[[int, int, str], None] = lambda done, total, text: None,
    ) -> None:
        self._idle_work = idle_work
        self._count = DrainCount(tell)
        self._pending = pending
        self._tier = tier
        self._limits = limits
        self._running: dict[TablePath, Future[TableResult | None]] = {}
        self._results: dict[TablePath, TableResult] = {}
        self._rests_until: dict[TablePath, float] = {}
        self._refused: dict[TablePath, float] = {}
        """The tables that the server does not hand out, and how long each rests, in seconds."""

    def run(self, threads: ThreadPoolExecutor, stopped: threading.Event) -> list[TableResult]:
        """Run the drain, and return the last outcome of each table that was tiered, in the order of their paths.

        Args:
            threads: The threads in which the rounds run.
            stopped: The event after which no round begins.

        Raises:
            FlussTieringError: UNAVAILABLE if the server cannot be asked whether any table is pending.
        """
        budget = self._limits.time_budget_s
        deadline = None if budget is None else time.monotonic() + budget
        while not stopped.is_set():
            over = deadline is not None and time.monotonic() >= deadline
            if not over:
                self._begin(threads)
            self._use_idle_time(over=over)
            if not self._running and (over or (not self._limits.follow and not self._more_is_pending())):
                break
            self._pending.wait(_LOOK_S if over or deadline is None else min(_LOOK_S, deadline - time.monotonic()))
            self._collect()
            self._count.look(self._pending.longest_waiting)
        return [self._results[path] for path in sorted(self._results)]

    def _begin(self, threads: ThreadPoolExecutor) -> None:
        for path in self._pending.longest_waiting():
            if len(self._running) >= self._limits.concurrency:
                return
            if path not in self._running and not self._rests(path):
                self._pending.discard(path)
                self._count.begin(path)
                self._running[path] = future = threads.submit(self._tier, path)
                future.add_done_callback(lambda _: self._pending.wake())

    def _use_idle_time(self, *, over: bool) -> None:
        if self._idle_work is None:
            return
        # A pending table waits here only while as many rounds run as may, or for a second after its last round. One
        # that the server does not hand out keeps nothing waiting.
        if over or self._running or any(path not in self._refused for path in self._pending.longest_waiting()):
            self._idle_work.give_way()
        else:
            self._idle_work.begin_if_due()

    def _collect(self) -> None:
        for path, future in list(self._running.items()):
            if future.done():
                del self._running[path]
                result = future.result()
                self._count.end(path, result)
                if result is not None:
                    self._results[path] = result
                    self._rests_until[path] = time.monotonic() + self._rest_s(result)

    def _rest_s(self, result: TableResult) -> float:
        """Return how long the table rests after this outcome, in seconds."""
        if result.failed and not result.recorded:
            before = self._refused.get(result.path)
            rest_s = self._refused[result.path] = REST_S if before is None else min(_MAX_REST_S, 2 * before)
            return rest_s
        self._refused.pop(result.path, None)
        return REST_S if not result.failed and result.stats.lake_snapshot_id is None else 0.0

    def _rests(self, path: TablePath) -> bool:
        return time.monotonic() < self._rests_until.get(path, 0.0)

    def _more_is_pending(self) -> bool:
        """Return whether a table is pending that does not rest after its last round here."""
        return self._pending.refresh() and not all(map(self._rests, self._pending.longest_waiting()))


class PendingTables(Closing):
    """The pending tables, as the server's stream of statuses tells. A stream that breaks is opened again.

    Args:
        only: The tables to watch; an empty sequence for all tables.
        hear: Takes all news of the stream, too.
    """

    def __init__(
        self,
        client: TieringClient,
        only: Sequence[TablePath] = (),
        hear: Callable[[StatusChanges], None] = lambda changes: None,
    ) -> None:
        self._client = client
        self._only = frozenset(only)
        self._hear = hear
        self._since: dict[TablePath, int] = {}
        self._condition = threading.Condition()
        self._news = False
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="fluss-tiering-pending", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop watching."""
        # The thread is a daemon, and its stream ends with the client's channel: nobody waits for it.
        self._closed.set()

    def longest_waiting(self) -> list[TablePath]:
        """Return the pending tables; the one that has been pending for the longest time is the first."""
        with self._condition:
            return sorted(self._since, key=self._since.__getitem__)

    def discard(self, path: TablePath) -> None:
        """Forget a pending table whose round begins."""
        with self._condition:
            self._since.pop(path, None)

    def refresh(self) -> bool:
        """Ask the server for all statuses and return whether any table is pending. The stream is a little late."""
        statuses = self._client.list_tiering_statuses()
        self._take(StatusChanges(tuple(statuses)))
        return bool(self.longest_waiting())

    def wait(self, timeout_s: float) -> None:
        """Return when something has changed since the last wait, or when the time is over."""
        with self._condition:
            self._condition.wait_for(lambda: self._news, timeout_s)
            self._news = False

    def wake(self) -> None:
        """End a wait."""
        with self._condition:
            self._news = True
            self._condition.notify_all()

    def _watch(self) -> None:
        retry = Retry(self._closed, what="the stream of tiering statuses broke")
        with contextlib.suppress(FlussTieringError):
            while not self._closed.is_set():
                retry(self._follow)

    def _follow(self) -> None:
        # The stream is about all tables: in a stream about some, a table that is dropped would end the stream.
        for changes in self._client.watch_tiering_statuses():
            if self._closed.is_set():
                return
            self._take(changes)
            self._hear(changes)

    def _take(self, changes: StatusChanges) -> None:
        with self._condition:
            for status in changes.statuses:
                if self._only and status.path not in self._only:
                    continue
                if status.state is TieringState.PENDING:
                    self._since[status.path] = status.state_since
                else:
                    self._since.pop(status.path, None)
            for path in changes.removed:
                self._since.pop(path, None)
        self.wake()
