"""Who watches statuses is told of changes: of each table the newest, however slow the watcher (S13)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Final

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import StatusChanges, TieringStatus

MAX_WATCHERS: Final = 256


class StatusWatcher:
    """One watcher. What it has not taken yet is kept by table, so it is bounded by the number of tables.

    Made and read by the watcher's own thread, filled by the thread of control.
    """

    def __init__(self, paths: Iterable[TablePath], wake: Callable[[], object]) -> None:
        """Watches these tables, or all with none; `wake` is called, from another thread, when there is news."""
        self._paths = frozenset(paths)
        self._wake = wake
        self._lock = threading.Lock()
        self._news: dict[TablePath, TieringStatus | None] = {}
        self._end: FlussTieringError | None = None

    def offer(self, news: Iterable[tuple[TablePath, TieringStatus | None]]) -> None:
        """Keeps what of the news is watched; None for a table that is not tiered any more."""
        with self._lock:
            known = len(self._news)
            for path, status in news:
                if not self._paths or path in self._paths:
                    self._news[path] = status
            first = known == 0 and bool(self._news)
        if first:
            self._wake()

    def end(self, error: FlussTieringError) -> None:
        """Ends it: what it takes next is the error."""
        with self._lock:
            self._end = error
        self._wake()

    def take(self) -> StatusChanges:
        """What changed since the last call. Raises the error that ended it."""
        with self._lock:
            if self._end is not None:
                raise FlussTieringError(self._end.code, self._end.message)
            news, self._news = self._news, {}
        return StatusChanges(
            statuses=tuple(status for status in news.values() if status is not None),
            removed=tuple(path for path, status in news.items() if status is None),
        )


class StatusBroadcaster:
    """The watchers of a server."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watchers: set[StatusWatcher] = set()
        self._end: FlussTieringError | None = None

    def add(self, watcher: StatusWatcher, statuses: Iterable[TieringStatus]) -> None:
        """Begins to tell a watcher, at first of all that is; in the thread of control, so that it misses nothing.

        Raises:
            FlussTieringError: UNAVAILABLE when there are `MAX_WATCHERS` already; what ended all, once that happened.
        """
        with self._lock:
            if self._end is not None:
                raise FlussTieringError(self._end.code, self._end.message)
            if len(self._watchers) >= MAX_WATCHERS:
                raise FlussTieringError(
                    ErrorCode.UNAVAILABLE,
                    f"{MAX_WATCHERS} watchers of statuses are connected, which is the limit: end some, or list instead",
                )
            self._watchers.add(watcher)
        watcher.offer((status.path, status) for status in statuses)

    def discard(self, watcher: StatusWatcher) -> None:
        """Tells a watcher no more; from any thread."""
        with self._lock:
            self._watchers.discard(watcher)

    def publish(self, news: list[tuple[TablePath, TieringStatus | None]]) -> None:
        """Tells all watchers."""
        if not news:
            return
        with self._lock:
            watchers = list(self._watchers)
        for watcher in watchers:
            watcher.offer(news)

    def end(self, error: FlussTieringError) -> None:
        """Ends all watchers for good, since the server stops or is no longer the active one; from any thread."""
        with self._lock:
            watchers, self._watchers, self._end = self._watchers, set(), error
        for watcher in watchers:
            watcher.end(error)

    def __len__(self) -> int:
        return len(self._watchers)
