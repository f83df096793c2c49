"""What a server asks of the storage behind it: all that differs between kinds of storage is asked by these protocols.

Each kind of storage has a folder beside this module (`embedded`, `cluster`) that implements the two protocols.
`app.choose_backend` chooses one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Protocol, TypeVar

from fluss_tiering.model.clock import Clock
from fluss_tiering.server.core.backend_services import LakeService, LeaseService
from fluss_tiering.server.core.background import Job
from fluss_tiering.server.core.lake.catalog import LakeCatalogProperties
from fluss_tiering.server.core.managers import Managers
from fluss_tiering.server.core.threads import ServerThreads
from fluss_tiering.storage.protocol import TableStorage

S = TypeVar("S", bound=TableStorage)


@dataclass(frozen=True, slots=True)
class StorageIdentity:
    """Tells one storage from another.

    Attributes:
        storage_id: The id of the storage; None before its first use.
        location: Where the storage is, for messages.
    """

    storage_id: str | None
    location: str


class Backend(Protocol[S]):
    """A kind of storage, with its settings. It tells the rules that depend on the storage, and opens it."""

    @property
    def due_by_freshness(self) -> bool:
        """Whether tables become Pending by themselves. If they do not, a job of the backend makes them Pending."""
        ...

    @property
    def catalog(self) -> LakeCatalogProperties:
        """The properties of the lake catalogs that tables are tiered into."""
        ...

    def identity(self) -> StorageIdentity | None:
        """Return which storage this is, without opening it; None if only the open storage can tell."""
        ...

    async def open_storage(self, clock: Clock, threads: ServerThreads, stack: AsyncExitStack) -> S:
        """Open the storage, which the caller closes.

        Args:
            stack: Closes what is opened beside the storage.

        Raises:
            FlussTieringError: DATA_DIR_IN_USE if another server holds the data folder; CORRUPT_DATA if the storage is
                damaged or is not what it should be; STORAGE if a file cannot be used; UNAVAILABLE if the storage
                cannot be reached.
        """
        ...

    async def open_active(
        self,
        storage: S,
        managers: Managers,
        threads: ServerThreads,
        check: Callable[[], None],
        stack: AsyncExitStack,
    ) -> ActiveBackend:
        """Open what an active server needs beside the storage.

        Args:
            storage: The storage that `open_storage` returned.
            managers: The managers, loaded.
            check: Raises an error unless this server certainly leads.
            stack: Closes what is opened.

        Raises:
            FlussTieringError: STORAGE if a file cannot be used.
        """
        ...


class ActiveBackend(Protocol):
    """The backend of the active server. Its members are used on the event loop unless they say otherwise."""

    @property
    def leases(self) -> LeaseService:
        """The service that pins KV snapshots."""
        ...

    @property
    def lake(self) -> LakeService:
        """The service that knows the lake snapshots."""
        ...

    @property
    def jobs(self) -> Sequence[Job]:
        """The background jobs that this kind of storage needs."""
        ...

    @property
    def allow_for_standstill(self) -> Sequence[Callable[[int], None]]:
        """The functions that give clients time back after the server stood still: see `Standstill`."""
        ...

    def table_count(self) -> int:
        """Return the number of tables in the storage.

        It may be called from any thread, and makes no call over the network.
        """
        ...

    async def refresh_tables(self) -> None:
        """Make tiering know the tables that other clients of the storage created, altered or dropped.

        Raises:
            FlussTieringError: UNAVAILABLE if the storage cannot be asked; STORAGE if the change cannot be stored.
        """
        ...
