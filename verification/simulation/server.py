"""The real servicers and managers, in a process that crashes and starts again with the same store."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import fields
from typing import Any, Final, ParamSpec, Protocol, TypeVar

from google.protobuf import message_factory
from google.protobuf.message import Message

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableDescriptor, TableInfo, TablePath
from fluss_tiering.server.backends.embedded.backend import ActiveEmbeddedBackend
from fluss_tiering.server.backends.embedded.jobs import collect_kv_snapshots
from fluss_tiering.server.components import ServerComponents
from fluss_tiering.server.core.definitions import SETTLE_INTERVAL_MS
from fluss_tiering.server.core.lake.catalog import LakeCatalogProperties
from fluss_tiering.server.core.leases.manager import KvSnapshotLeaseManager
from fluss_tiering.server.core.managers import Managers
from fluss_tiering.server.core.tiering.policy import TieringPolicy
from fluss_tiering.server.core.tiering.states import FailureBackoff
from fluss_tiering.server.edge.callers.identity import ANYBODY, Caller, set_caller
from fluss_tiering.server.edge.callers.roles import Role
from fluss_tiering.server.edge.methods import SERVICES
from fluss_tiering.server.services.kv_snapshot_leases import LeasesServicer
from fluss_tiering.server.services.lake_tiering import LakeTieringServicer
from fluss_tiering.server.services.table_access import TableAccess
from fluss_tiering.server.services.tables import TablesServicer
from simulation.scheduler import Process, Scheduler
from simulation.storage import ModelStorage
from simulation.store import FaultyStore, ServerCrash

P = ParamSpec("P")
T = TypeVar("T")

HEARTBEAT_TIMEOUT_MS = 120_000
HEARTBEAT_CHECK_MS = 15_000
LEASE_CHECK_MS = 60_000
"""Shorter than the default, so that expired leases are gone soon and more can go wrong."""

_BACKOFF_MS: Final = (10_000, 600_000)
_MAX_FAILURES: Final = 2
_KEPT_ROUNDS: Final = 100
_DOWN_MS: Final = (100, 2_000, 20_000)


class Observer(Protocol):
    """Hears what happens inside the server, and compares it with a reference (`checks`)."""

    def before(self, sender: Process, method: str, request: Any) -> Any:
        """Hear of a request before it is handled. The result is passed to `after`."""
        ...

    def after(self, method: str, request: Any, response: Any, seen: Any) -> None:
        """Hear of an acknowledged request, in the same step as its last change; None if it was refused."""
        ...

    def died(self) -> None:
        """Hear that the server is gone, with all that it had begun."""
        ...

    def started(self, managers: Managers) -> None:
        """Hear that the server has loaded its state."""
        ...

    def job_done(self, job: str, began_ms: int) -> None:
        """Hear that a background job ran."""
        ...


class SimThreads:
    """Takes the place of `ServerThreads`: the scheduler itself runs one thing after the other."""

    def __init__(self, server: SimServer) -> None:
        self._server = server

    async def control(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self._server.pause()
        return function(*args, **kwargs)

    async def storage(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self._server.pause()
        return function(*args, **kwargs)

    async def storage_each(self, function: Callable[[Any], T], values: Iterable[Any]) -> list[T]:
        return [await self.storage(function, value) for value in values]

    async def to_its_end(self, steps: Coroutine[Any, Any, T]) -> T:
        return await steps


class SimServer:
    """The server. `process` is None while it is down."""

    def __init__(
        self, scheduler: Scheduler, storage: ModelStorage, store: FaultyStore, chance: random.Random, observer: Observer
    ) -> None:
        self._scheduler = scheduler
        self._storage = storage
        self._store = store
        self._chance = chance
        self._servicers: list[Any] = []
        self._threads: Any = SimThreads(self)
        self._unanswered: dict[object, Callable[[], None]] = {}
        self.observer = observer
        self.managers: Managers
        self.process: Process | None = None
        self.counters = {"server crashes": 0, "tables resumed": 0}

    # Life

    def start(self) -> None:
        """Load the state and serve."""
        process = Process("server")
        jitter = random.Random(self._chance.getrandbits(32))
        policy = TieringPolicy(HEARTBEAT_TIMEOUT_MS, FailureBackoff(*_BACKOFF_MS, jitter, _MAX_FAILURES), _KEPT_ROUNDS)
        try:
            managers: Any = Managers(self._storage, self._store, self._scheduler, policy)  # type: ignore[arg-type]
        except (ServerCrash, FlussTieringError):
            self._scheduler.after(1000, self.start)
            return
        self.managers = managers
        self._storage.listener = managers.backlogs
        threads = self._threads
        present = {
            "threads": threads,
            "storage": self._storage,
            "managers": managers,
            "catalog": LakeCatalogProperties({"type": "simulated"}, server_wins=False),
            "backend": ActiveEmbeddedBackend(self._storage, managers, threads, kv_snapshot_interval_ms=1),  # type: ignore[arg-type]
        }
        # The other components belong to services that tiering does not call.
        components: Any = ServerComponents(**{each.name: present.get(each.name) for each in fields(ServerComponents)})
        self._servicers = [
            TablesServicer(components),
            LeasesServicer(components, TableAccess(components)),
            LakeTieringServicer(components),
        ]
        self.process = process
        self.observer.started(managers)
        leases, tiering = managers.leases, managers.tiering
        self._repeat("drop expired leases", LEASE_CHECK_MS, lambda: _drop_expired(leases))
        self._repeat("fail silent rounds", HEARTBEAT_CHECK_MS, tiering.end_overdue_rounds)
        self._repeat("count backlogs", 3_000, self._count_backlogs)
        self._repeat("move due tables", 5_000, tiering.move_due_tables)
        self._repeat("take KV snapshots", 20_000, self._take_kv_snapshots)
        self._repeat("forget dropped tables", SETTLE_INTERVAL_MS, managers.forget_dropped)

    def crash(self, down_ms: int) -> None:
        """End the server where it is. It starts again after `down_ms`."""
        process, self.process = self.process, None
        if process is None:
            return
        self.counters["server crashes"] += 1
        unanswered, self._unanswered = self._unanswered, {}
        for refuse in unanswered.values():
            refuse()
        self.observer.died()
        self._scheduler.after(down_ms, self.start)
        self._scheduler.kill(process)

    # Calls

    def handle(self, sender: Process, method: str, request: Any, refuse: Callable[[], None]) -> Message:
        """Handle one call in a fiber of the server. `refuse` is called if the server dies before the answer."""
        call = object()
        self._unanswered[call] = refuse
        seen = self.observer.before(sender, method, request)
        set_caller(Caller(ANYBODY, Role.ADMIN))
        servicer = next(each for each in self._servicers if hasattr(each, method))
        try:
            response = _message(method, _run(getattr(servicer, method)(request, None)))
        except ServerCrash:
            self.crash(self._chance.choice(_DOWN_MS))
            raise
        except FlussTieringError:
            self.observer.after(method, request, None, seen)
            raise
        finally:
            self._unanswered.pop(call, None)
        self.observer.after(method, request, response, seen)
        return response

    def create_table(self, path: TablePath, descriptor: TableDescriptor) -> TableInfo | None:
        """Create a table as the servicer does, but without asyncio's lock; return None if the disk was full."""
        table = self._storage.create_table(path, descriptor)
        if not self._control(lambda: self.managers.tiering.register(table)):
            self._storage.drop_table(path)
            return None
        return table

    def drop_table(self, path: TablePath) -> None:
        """Drop a table as the servicer does, but without asyncio's lock."""
        table = self._storage.drop_table(path)
        self._control(lambda: self.managers.forget_table(table.table_id, path))

    def resume_parked(self) -> None:
        """Resume parked tables, as an operator does once the cause of failures is gone (S19)."""
        if self.process is not None:
            tiering = self.managers.tiering
            parked = [status.path for status in tiering.statuses() if status.parked]
            self.counters["tables resumed"] += len(parked)
            self._control(lambda: tiering.resume(parked))

    def pause(self) -> None:
        """Let other fibers run between two steps of a handler."""
        if (delay := self._chance.randrange(-3, 4)) >= 0:
            self._scheduler.sleep(delay)

    # Jobs

    def _repeat(self, name: str, interval_ms: int, job: Callable[[], object]) -> None:
        process = self.process
        assert process is not None

        def repeat() -> None:
            while True:
                began = self._scheduler.now
                if self._control(job):
                    self.observer.job_done(name, began)
                self._scheduler.sleep(int(interval_ms * (0.5 + self._chance.random() / 2)))

        self._scheduler.spawn(process, repeat)

    def _control(self, job: Callable[[], object]) -> bool:
        """Return whether the disk accepted it. The caller does not see a crash right after the answer."""
        try:
            job()
        except FlussTieringError as error:
            if error.code is not ErrorCode.STORAGE:
                raise
            return False
        except ServerCrash:
            self.crash(self._chance.choice(_DOWN_MS))
        return True

    def _count_backlogs(self) -> None:
        for table in self._storage.tables():
            if not self.managers.backlogs.is_current(table.table_id):
                self.managers.backlogs.count(table.table_id, self._storage.buckets(table.path))

    def _take_kv_snapshots(self) -> None:
        for table in self._storage.tables():
            if table.has_primary_key:
                self._storage.take_kv_snapshots(table.path)
        _run(collect_kv_snapshots(self._threads, self._storage, self.managers))  # type: ignore[arg-type]


def _drop_expired(leases: KvSnapshotLeaseManager) -> None:
    leases.drop_expired()
    leases.prune_attempts()


def _run(steps: Any) -> Any:
    """Run a handler to its end. It waits in its fiber, never in an event loop."""
    try:
        steps.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("a handler waits for an event loop, which the simulation does not have")


def _message(method: str, response: Any) -> Message:
    """Return the answer of a handler as a message. Some handlers serialize it themselves."""
    if not isinstance(response, bytes):
        return response  # type: ignore[no-any-return]
    found = next(each for service in SERVICES for each in service.methods if each.name == method)
    return message_factory.GetMessageClass(found.output_type).FromString(response)
