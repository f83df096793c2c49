"""Watchers of statuses: each is told of changes, and a slow one skips to the newest status of a table."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Final

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import StatusChanges, TieringStatus

MAX_WATCHERS: Final = 256


class StatusWatcher:
    """One watcher of statuses.

    News that it has not taken yet are kept one per table, so their number is bounded by the number of tables. The
    watcher's own thread makes and reads it; the control thread fills it.

    Attributes:
        left: Whether nobody watches any more. The broadcaster sets it.
    """

    def __init__(self, paths: Iterable[TablePath], wake: Callable[[], object]) -> None:
        """Prepare to watch tables.

        Args:
            paths: The tables to watch. Without any, all tables are watched.
            wake: Called when there are news. The call comes from another thread.
        """
        self.left = False
        self._paths = frozenset(paths)
        self._wake = wake
        self._lock = threading.Lock()
        self._news: dict[TablePath, TieringStatus | None] = {}
        self._end: FlussTieringError | None = None

    def offer(self, news: Iterable[tuple[TablePath, TieringStatus | None]]) -> None:
        """Keep the news of watched tables. A status of None means that the table is no longer tiered."""
        with self._lock:
            known = len(self._news)
            for path, status in news:
                if not self._paths or path in self._paths:
                    self._news[path] = status
            first = known == 0 and bool(self._news)
        if first:
            self._wake()

    def end(self, error: FlussTieringError) -> None:
        """End the watcher: its next `take` raises the error."""
        with self._lock:
            self._end = error
        self._wake()

    def take(self) -> StatusChanges:
        """Return what changed since the last call.

        Raises:
            FlussTieringError: The error that ended the watcher.
        """
        with self._lock:
            if self._end is not None:
                raise FlussTieringError(self._end.code, self._end.message)
            news, self._news = self._news, {}
        return StatusChanges(
            statuses=tuple(status for status in news.values() if status is not None),
            removed=tuple(path for path, status in news.items() if status is None),
        )


class StatusBroadcaster:
    """The watchers of a server, which are told of each change."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watchers: set[StatusWatcher] = set()
        self._end: FlussTieringError | None = None

    def add(self, watcher: StatusWatcher, statuses: Iterable[TieringStatus]) -> None:
        """Add a watcher and tell it the present statuses. One that was discarded before is not added.

        Call this in the control thread, so that the watcher misses no change.

        Raises:
            FlussTieringError: UNAVAILABLE if there are `MAX_WATCHERS` already; the error given to `end` if it was
                called before.
        """
        with self._lock:
            if self._end is not None:
                raise FlussTieringError(self._end.code, self._end.message)
            if watcher.left:
                return
            if len(self._watchers) >= MAX_WATCHERS:
                raise FlussTieringError(
                    ErrorCode.UNAVAILABLE,
                    f"{MAX_WATCHERS} watchers of statuses are connected, which is the limit: end some, or list instead",
                )
            self._watchers.add(watcher)
        watcher.offer((status.path, status) for status in statuses)

    def discard(self, watcher: StatusWatcher) -> None:
        """Remove a watcher, for good. Any thread may call this, also while the control thread is about to add it."""
        with self._lock:
            watcher.left = True
            self._watchers.discard(watcher)

    def publish(self, news: list[tuple[TablePath, TieringStatus | None]]) -> None:
        """Tell all watchers."""
        if not news:
            return
        with self._lock:
            watchers = list(self._watchers)
        for watcher in watchers:
            watcher.offer(news)

    def end(self, error: FlussTieringError) -> None:
        """End all watchers, because the server stops or is no longer the active one. Any thread may call this."""
        with self._lock:
            watchers, self._watchers, self._end = self._watchers, set(), error
        for watcher in watchers:
            watcher.end(error)

    def __len__(self) -> int:
        return len(self._watchers)
