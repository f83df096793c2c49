"""A table in the JVM, which is loaded again when the credentials that the catalog vended with it end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from fluss_tiering.lake.iceberg.java import lake_errors
from fluss_tiering.lake.iceberg.library import JavaTable
from fluss_tiering.lake.iceberg.metadata.file_io import file_io_properties
from fluss_tiering.lake.object_store import credentials_last, require_writable
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo

_FRESH_MS: Final = 15 * 60_000
"""Credentials that end before this time are renewed before a stage, a wave of a round, or a commit begins."""


class RenewedTable:
    """Loads a table again for new credentials. Only files are written with what was loaded again.

    Such a table shows what others have committed meanwhile, so a commit has to validate from the round's own
    base.

    Args:
        handle: The table in the JVM, as it was loaded first.
        reload: Loads it again, with credentials that the catalog vends then; None if nothing can be renewed.
    """

    def __init__(self, table: TableInfo, handle: JavaTable, reload: Callable[[], JavaTable] | None) -> None:
        self._table = table
        self._reload = reload
        self._properties: Mapping[str, str] = {}
        self.newest = handle

    def io_properties(self, location: str, *, renew: bool) -> dict[str, str]:
        """Return the properties with which executors write to a location; with new credentials if the old ones end.

        Args:
            location: Where the files are written.
            renew: Whether the credentials are renewed in any case.

        Raises:
            FlussTieringError: STORAGE if the catalog cannot be reached, or if executors cannot do what the properties
                demand; LAKE_CONFLICT if another table has taken the place of this one.
        """
        found = self._found(location)
        if renew or not credentials_last(found, _FRESH_MS):
            self._load()
            found = self._found(location)
        require_writable(location, found)
        self._properties = found
        return found

    def for_commit(self) -> JavaTable:
        """Return a table object whose credentials are valid for a while.

        Raises:
            FlussTieringError: STORAGE if the catalog cannot be reached; LAKE_CONFLICT if another table has taken the
                place of this one.
        """
        if not credentials_last(self._properties, _FRESH_MS):
            self._load()
        return self.newest

    def _found(self, location: str) -> dict[str, str]:
        return file_io_properties(self.newest, location, self._table.lake_catalog_properties)

    def _load(self) -> None:
        if self._reload is None:
            return
        with lake_errors(f"get new credentials for the lake table {self._table.lake_path}"):
            loaded = self._reload()
            is_same = _uuid(loaded) == _uuid(self.newest)
        if not is_same:
            raise FlussTieringError(
                ErrorCode.LAKE_CONFLICT,
                f"the lake table {self._table.lake_path} was replaced by another one during the round: expected the "
                "same table; nothing was committed, the next round says what to do with the new one",
            )
        self.newest = loaded


def _uuid(handle: JavaTable) -> str:
    return str(handle.operations().current().uuid())
