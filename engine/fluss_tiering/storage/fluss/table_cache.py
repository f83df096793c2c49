"""A cache of the tables of a cluster, so that frequent questions cost the cluster little."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo, TablePath
from fluss_tiering.storage.fluss.rpc.calls.tables import list_databases, list_tables, table
from fluss_tiering.storage.fluss.rpc.client import FlussClient, ParallelCalls
from fluss_tiering.storage.fluss.rpc.errors import FlussError, FlussServerError
from fluss_tiering.storage.fluss.table_formats import check_tierable

_FRESH_S: Final = 1.0
"""The age up to which a table counts as fresh."""
_LISTED_S: Final = 2.0
"""The age up to which the list of tables counts as fresh."""
_REFRESHED_TABLES: Final = 50
"""The number of known tables that each refresh reads again, in turn, since each costs the cluster a look into
ZooKeeper. With more tables, an alteration by others is noticed some refreshes later."""
_GONE: Final = frozenset({ErrorCode.TABLE_NOT_EXIST, ErrorCode.DATABASE_NOT_EXIST})
_UNUSABLE: Final = frozenset({ErrorCode.INVALID_TABLE, ErrorCode.CORRUPT_DATA})
_ERRORS_OF_A_TABLE: Final = frozenset({FlussError.SCHEMA_NOT_EXIST, FlussError.UNKNOWN_SERVER_ERROR})
"""The errors of a coordinator that cannot read what it keeps of one table, or creates or drops the table just now."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """A table as it was at a time, or the reason why it cannot be used."""

    found: TableInfo | FlussTieringError
    at: float


class ClusterTableCache:
    """The tables of a cluster as they were last seen. It allows concurrent calls."""

    def __init__(
        self, client: FlussClient, calls: ParallelCalls, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """Begin without tables."""
        self._client = client
        self._calls = calls
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._refreshing = threading.Lock()
        self._listed_at: float | None = None
        self._seen: dict[TablePath, _Seen] = {}
        self._changed_at: dict[TablePath, float] = {}

    def all(self) -> list[TableInfo]:
        """Return all tables that can be used, ordered by path, as they were at most a few seconds ago."""
        self._refresh_after(_LISTED_S)
        return self._known()

    def refresh(self) -> list[TableInfo]:
        """Read the list again and return all tables that can be used, ordered by path."""
        with self._refreshing:
            self._refresh()
        return self._known()

    def unusable(self) -> Mapping[TablePath, FlussTieringError]:
        """Return the tables that cannot be used here, each with the reason."""
        with self._lock:
            return {path: seen.found for path, seen in self._seen.items() if isinstance(seen.found, FlussTieringError)}

    def get(self, path: TablePath) -> TableInfo:
        """Return the table at this path, as it was at most a second ago.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is none; INVALID_TABLE if it cannot be used here; AUTHORIZATION
                if the user may not describe it.
        """
        seen = self._seen.get(path)
        # A coordinator cannot describe a table while it creates it: that is over once its creator knows of the table.
        if seen is None or _is_not_described(seen.found) or self._monotonic() - seen.at > _FRESH_S:
            seen = self._look(path)
        return _usable(path, seen)

    def look_again(self, path: TablePath) -> TableInfo:
        """Return the table as it is now; later calls of `get` return nothing older. Errors are those of `get`."""
        return _usable(path, self._look(path))

    def get_by_id(self, table_id: int) -> TableInfo:
        """Return the table that has this id, as it was at most a second ago.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is none.
        """
        path = self._path_of(table_id)
        if path is None:
            # Callers may name any id, so that not each one costs the cluster a list of its tables.
            self._refresh_after(_FRESH_S)
            path = self._path_of(table_id)
        if path is not None and (info := self.get(path)).table_id == table_id:
            return info
        raise table_not_exist(table_id)

    def look_at_unlisted(self, paths: Collection[TablePath]) -> None:
        """Look at tables that are no longer listed, and count those as unusable that the user may no longer describe.

        The cluster's lists leave them out like dropped tables.
        """
        self._calls.each(lambda path: self._look(path, known=True), paths)

    def invalidate(self, path: TablePath) -> None:
        """Forget a table that was created, altered or dropped just now."""
        with self._lock:
            self._seen.pop(path, None)
            # Another thread may have read the table before the change and not have stored it yet.
            self._changed_at[path] = self._monotonic()

    def _known(self) -> list[TableInfo]:
        with self._lock:
            infos = [seen.found for seen in self._seen.values() if isinstance(seen.found, TableInfo)]
        return sorted(infos, key=lambda info: info.path)

    def _path_of(self, table_id: int) -> TablePath | None:
        # Sorting ten thousand tables, as for a list, takes longer than most calls that name a table by its id.
        with self._lock:
            for seen in self._seen.values():
                if isinstance(seen.found, TableInfo) and seen.found.table_id == table_id:
                    return seen.found.path
        return None

    def _refresh_after(self, seconds: float) -> None:
        with self._refreshing:
            if self._listed_at is None or self._monotonic() - self._listed_at > seconds:
                self._refresh()

    def _refresh(self) -> None:
        listed = set(self._list())
        with self._lock:
            for path in self._seen.keys() - listed:
                if not _is_refused(self._seen[path]):
                    del self._seen[path]
            self._changed_at = {path: at for path, at in self._changed_at.items() if path in listed}
            unknown = [path for path in listed if path not in self._seen]
            known = sorted(self._seen, key=lambda path: self._seen[path].at)
        self._calls.each(lambda path: self._look(path, known=True), [*unknown, *known[:_REFRESHED_TABLES]])
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

    def _look(self, path: TablePath, *, known: bool = False) -> _Seen | None:
        at = self._monotonic()
        try:
            info = self._client.call(table(path))
            check_tierable(path, info.descriptor)
            seen = _Seen(info, at)
        except FlussTieringError as error:
            if error.code in _GONE:
                with self._lock:
                    self._seen.pop(path, None)
                return None
            # Callers may name any table. Of those that exist it is kept that the cluster does not describe them now.
            is_kept = (known or path in self._seen) and _concerns_the_table_alone(error)
            if error.code not in _UNUSABLE and not is_kept:
                raise
            seen = _Seen(error, at)
        with self._lock:
            newer = self._seen.get(path)
            if at >= self._changed_at.get(path, at) and (newer is None or at >= newer.at):
                self._seen[path] = seen
        return seen


def _concerns_the_table_alone(error: FlussTieringError) -> bool:
    return error.code is ErrorCode.AUTHORIZATION or _is_not_described(error)


def _is_not_described(found: TableInfo | FlussTieringError) -> bool:
    return isinstance(found, FlussServerError) and found.fluss_error in _ERRORS_OF_A_TABLE and not found.transient


def _is_refused(seen: _Seen) -> bool:
    return isinstance(seen.found, FlussTieringError) and seen.found.code is ErrorCode.AUTHORIZATION


def _usable(path: TablePath, seen: _Seen | None) -> TableInfo:
    if seen is None:
        raise table_not_exist(path)
    if isinstance(seen.found, FlussTieringError):
        raise FlussTieringError(seen.found.code, seen.found.message)
    return seen.found


def table_not_exist(which: TablePath | int) -> FlussTieringError:
    """Return TABLE_NOT_EXIST for a path or an id."""
    named = f"with id {which}" if isinstance(which, int) else str(which)
    return FlussTieringError(
        ErrorCode.TABLE_NOT_EXIST,
        f"table {named} does not exist in the Fluss cluster: expected one that was created; list the tables to see "
        "which there are",
    )
