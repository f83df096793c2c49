"""The tables of a cluster as they were last seen, so that what asks for them often costs the cluster little."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo, TablePath
from fluss_tiering.storage.fluss.rpc.calls.tables import list_databases, list_tables, table
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from fluss_tiering.storage.fluss.rpc.parallel import ParallelCalls
from fluss_tiering.storage.fluss.supported import check_tierable

_FRESH_S: Final = 1.0
"""So long a table counts as seen just now."""
_LISTED_S: Final = 2.0
"""So long the list of tables does."""
_SEEN_AGAIN_AT_ONCE: Final = 50
"""Of known tables at each refresh, in turn: with more of them, an alteration by others is noticed some refreshes later.
Each costs the cluster a look into ZooKeeper."""
_GONE: Final = frozenset({ErrorCode.TABLE_NOT_EXIST, ErrorCode.DATABASE_NOT_EXIST})


@dataclass(frozen=True, slots=True)
class _Seen:
    """A table as it was at a time, or why it cannot be used."""

    found: TableInfo | FlussTieringError
    at: float


class ClusterTables:
    """The tables; safe under concurrent calls."""

    def __init__(
        self, client: FlussClient, calls: ParallelCalls, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """Knows of no table yet."""
        self._client = client
        self._calls = calls
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._refreshing = threading.Lock()
        self._listed_at: float | None = None
        self._seen: dict[TablePath, _Seen] = {}
        self._changed_at: dict[TablePath, float] = {}

    def all(self) -> list[TableInfo]:
        """All tables that can be used, by path, as they were a few seconds ago at most."""
        with self._refreshing:
            if self._listed_at is None or self._monotonic() - self._listed_at > _LISTED_S:
                self._refresh()
        return self._known()

    def refresh(self) -> list[TableInfo]:
        """The same as they are now."""
        with self._refreshing:
            self._refresh()
        return self._known()

    def unusable(self) -> Mapping[TablePath, FlussTieringError]:
        """Tables of which the cluster says what is not understood here, each with what it is."""
        with self._lock:
            return {path: seen.found for path, seen in self._seen.items() if isinstance(seen.found, FlussTieringError)}

    def get(self, path: TablePath) -> TableInfo:
        """The table of that path, as it was a second ago at most. Raises TABLE_NOT_EXIST, INVALID_TABLE."""
        seen = self._seen.get(path)
        if seen is None or self._monotonic() - seen.at > _FRESH_S:
            seen = self._look(path)
        if seen is None:
            raise _not_exist(str(path))
        if isinstance(seen.found, FlussTieringError):
            raise FlussTieringError(seen.found.code, seen.found.message)
        return seen.found

    def get_by_id(self, table_id: int) -> TableInfo:
        """The table of that id, as it was a second ago at most. Raises TABLE_NOT_EXIST."""
        path = self._path_of(table_id)
        if path is None:
            self.refresh()
            path = self._path_of(table_id)
        if path is not None and (info := self.get(path)).table_id == table_id:
            return info
        raise _not_exist(f"with id {table_id}")

    def look_again(self, path: TablePath) -> None:
        """The table was created, altered or dropped just now: what was seen of it counts no more."""
        with self._lock:
            self._seen.pop(path, None)
            # Somebody may have looked before and not have told yet.
            self._changed_at[path] = self._monotonic()

    def _known(self) -> list[TableInfo]:
        with self._lock:
            infos = [seen.found for seen in self._seen.values() if isinstance(seen.found, TableInfo)]
        return sorted(infos, key=lambda info: info.path)

    def _path_of(self, table_id: int) -> TablePath | None:
        return next((info.path for info in self._known() if info.table_id == table_id), None)

    def _refresh(self) -> None:
        listed = set(self._list())
        with self._lock:
            for path in self._seen.keys() - listed:
                del self._seen[path]
            self._changed_at = {path: at for path, at in self._changed_at.items() if path in listed}
            unknown = [path for path in listed if path not in self._seen]
            known = sorted(self._seen, key=lambda path: self._seen[path].at)
        self._calls.each(self._look, [*unknown, *known[:_SEEN_AGAIN_AT_ONCE]])
        self._listed_at = self._monotonic()

    def _list(self) -> list[TablePath]:
        paths: list[TablePath] = []
        for database in self._client.call(list_databases()):
            try:
                tables = self._client.call(list_tables(database))
                paths += tables
            except FlussTieringError as error:
                if error.code is not ErrorCode.DATABASE_NOT_EXIST:
                    raise
        return paths

    def _look(self, path: TablePath) -> _Seen | None:
        at = self._monotonic()
        try:
            info = self._client.call(table(path)).info
            check_tierable(path, info.descriptor)
            seen = _Seen(info, at)
        except FlussTieringError as error:
            if error.code in _GONE:
                with self._lock:
                    self._seen.pop(path, None)
                return None
            if error.code not in (ErrorCode.INVALID_TABLE, ErrorCode.CORRUPT_DATA):
                raise
            seen = _Seen(error, at)
        with self._lock:
            if at >= self._changed_at.get(path, at):
                self._seen[path] = seen
        return seen


def _not_exist(which: str) -> FlussTieringError:
    return FlussTieringError(
        ErrorCode.TABLE_NOT_EXIST,
        f"table {which} does not exist in the Fluss cluster: expected one that was created; list the tables to see "
        "which there are",
    )
