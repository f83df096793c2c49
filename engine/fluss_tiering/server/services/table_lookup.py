"""Tells which of the tables that a call names do not exist."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import TableInfo, TablePath
from fluss_tiering.server.core.threads import ServerThreads
from fluss_tiering.server.core.tiering.manager import LakeTieringManager
from fluss_tiering.server.core.tiering.policy import LakeOptions
from fluss_tiering.storage.protocol import TableStorage


class StorageLookup:
    """Asks the storage which tables exist.

    Args:
        threads: The threads of the server.
        storage: The tables.
        tiering: The tables that are tiered.
        refresh: Makes tiering know the tables that other clients of the storage created.
    """

    def __init__(
        self,
        threads: ServerThreads,
        storage: TableStorage,
        tiering: LakeTieringManager,
        refresh: Callable[[], Awaitable[None]],
    ) -> None:
        self._threads = threads
        self._storage = storage
        self._tiering = tiering
        self._refresh = refresh

    async def missing(self, paths: Sequence[TablePath]) -> dict[TablePath, FlussTieringError]:
        """Return the tables that do not exist, each with its error.

        The storage may be out of reach. It is asked only about tables that are not tiered. A table that another client
        created a moment ago is tiered after this call.
        """
        untiered = await self._threads.control(self._tiering.untiered, paths)
        if not untiered:
            return {}
        found = await self._threads.storage(self._look_for, untiered)
        if any(isinstance(each, TableInfo) and _is_tiered(each) for each in found):
            await self._refresh()
        answers = zip(untiered, found, strict=True)
        return {path: answer for path, answer in answers if isinstance(answer, FlussTieringError)}

    async def require(self, path: TablePath) -> None:
        """Raise TABLE_NOT_EXIST if the storage does not have the table."""
        await self._threads.storage(self._storage.table, path)

    def _look_for(self, paths: Sequence[TablePath]) -> list[TableInfo | FlussTieringError]:
        answers: list[TableInfo | FlussTieringError] = []
        for path in paths:
            try:
                answers.append(self._storage.table(path))
            except FlussTieringError as error:
                answers.append(error)
        return answers


def _is_tiered(table: TableInfo) -> bool:
    return LakeOptions.of(table.descriptor.properties).enabled
