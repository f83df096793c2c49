"""The server's stream of statuses, from which an application hears at once that one of its rounds was ended."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final, Self

from fluss_tiering.client import TieringClient
from fluss_tiering.model.closing import Closing
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import StatusChanges
from fluss_tiering.spark.retry import Retry

_LONGEST_PAUSE_S: Final = 30.0
"""Without the stream, rounds hear of their end as late as this, by their next heartbeats."""
_NOT_WATCHED: Final = frozenset({ErrorCode.TABLE_NOT_EXIST, ErrorCode.INVALID_TIERING_STATE})
"""The server refuses the whole stream because of one table that does not exist or is not tiered."""


class StatusStream(Closing):
    """Hands on what the server tells of the statuses of some tables. A stream that breaks is opened again.

    Args:
        client: The client for the tiering server. Its end ends the stream.
        tables: The tables. Those that are dropped or no longer tiered are left out when the stream is opened again.
        hear: Takes the news, in the thread of the stream.
    """

    def __init__(
        self, client: TieringClient, tables: Sequence[TablePath], hear: Callable[[StatusChanges], None]
    ) -> None:
        self._client = client
        self._tables = list(tables)
        self._hear = hear
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fluss-tiering-statuses", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def close(self) -> None:
        """Hand on nothing more."""
        # The thread is a daemon, and its stream ends with the client's channel: nobody waits for it.
        self._closed.set()

    def _run(self) -> None:
        retry = Retry(self._closed, longest_pause_s=_LONGEST_PAUSE_S, what="the stream of tiering statuses broke")
        try:
            while self._tables and not self._closed.is_set():
                retry(self._follow)
        except FlussTieringError:
            pass
        except Exception:
            # A client that is closed in the middle of a call fails with other errors of gRPC, which tell nothing.
            if not self._closed.is_set():
                raise

    def _follow(self) -> None:
        try:
            for changes in self._client.watch_tiering_statuses(self._tables):
                if self._closed.is_set():
                    return
                self._hear(changes)
        except FlussTieringError as error:
            if error.code not in _NOT_WATCHED:
                raise
            present = [path for path in self._tables if self._is_tiered(path)]
            # The server tells of the removal of a table only those who watched it before.
            removed = tuple(path for path in self._tables if path not in present)
            self._tables = present
            self._hear(StatusChanges(statuses=(), removed=removed))

    def _is_tiered(self, path: TablePath) -> bool:
        try:
            self._client.list_tiering_statuses(path)
        except FlussTieringError as error:
            if error.code not in _NOT_WATCHED:
                raise
            return False
        return True
