"""All checks of a run. The first violation ends the run."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from fluss_tiering.model.table import TableBucket
from fluss_tiering.server.core.managers import Managers
from fluss_tiering.spark.round.plan import SnapshotPiece
from fluss_tiering.wire.buckets import bucket_from_pb
from simulation import lease_checks
from simulation.lake_checks import LakeChecks
from simulation.lease_checks import LeaseChecks
from simulation.scheduler import Process
from simulation.tiering_checks import TieringChecks

if TYPE_CHECKING:
    from simulation.world import World


class Checks:
    """`server.Observer`: compares what the server does with the references.

    Attributes:
        violation: The first violation, with the numbers of the promises that it breaks; None while all is well.
        recovered: How many lake snapshots a later round registered.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.violation: str | None = None
        self.recovered = 0
        self.leases = LeaseChecks(world.scheduler, self.violated)
        self.tiering = TieringChecks(world.scheduler, self.leases, self.violated)
        self.lake = LakeChecks(world.lake, world.storage.lake_offsets, self.violated)
        self._numbers = itertools.count()
        self._pending: dict[int, tuple[str, Any]] = {}
        self._released: dict[str, set[TableBucket]] = {}
        world.store.on_durable = self.tiering.durable
        world.storage.on_collect = self.leases.collected
        world.spark.on_snapshot_read = self._reads

    def violated(self, what: str) -> None:
        """End the run."""
        if self.violation is None:
            self.violation = what
            self._world.note("violation", what)

    def before(self, sender: Process, method: str, request: Any) -> Any:
        self._world.note(sender, method, request)
        number = next(self._numbers)
        self._pending[number] = (method, request)
        if method == "ReleaseKvSnapshotLease":
            released = {bucket_from_pb(each) for each in request.buckets_to_release}
            self._released.setdefault(sender.name, set()).update(released)
        return number, self.leases.before(), self.tiering.before(method, request)

    def after(self, method: str, request: Any, response: Any, seen: Any) -> None:
        number, floor, before = seen
        del self._pending[number]
        if response is not None:
            self._world.note("server", f"{method} ->", response)
            self.leases.after(method, request, response, floor)
            self.tiering.after(method, request, response, before)
            if method == "CommitLakeTableSnapshot":
                self._registered(request, response)
        if method in lease_checks.METHODS:
            self.leases.check_held(self._world.server.managers)

    def died(self) -> None:
        self._world.note("server", "is killed")
        for method, request in self._pending.values():
            self.leases.never_acknowledged(method, request)
        self._pending.clear()

    def started(self, managers: Managers) -> None:
        self._world.note("server", "starts")
        self.tiering.started(managers)
        self.leases.check_held(managers)

    def job_done(self, job: str, began_ms: int) -> None:
        managers = self._world.server.managers
        match job:
            case "drop expired leases":
                self.leases.check_held(managers)
                self.leases.check_expired(managers, began_ms)
            case "fail silent rounds":
                self.tiering.check_silent()
            case "move due tables":
                self.tiering.check_due(managers, self._world.storage)

    def at_rest(self) -> None:
        """Check the state when nothing happens any more."""
        self.tiering.check_ended()
        managers = self._world.server.managers
        behind = [each for each in managers.tiering.statuses() if each.records_waiting]
        if behind:
            self.violated(f"records are counted that do not wait: {behind}")
        for table in self._world.storage.tables():
            self.lake.check_table(table, managers)

    def _registered(self, request: Any, response: Any) -> None:
        for entry, answer in zip(request.tables_req, response.tables_resp, strict=True):
            if not answer.HasField("error"):
                self.lake.registered(self._world.server.managers, entry.table_id, entry.snapshot_id)
                self.recovered += self.lake.is_of_another_round(entry.table_id, entry.snapshot_id, entry.tiering_epoch)

    def _reads(self, process: Process, piece: SnapshotPiece) -> None:
        if piece.bucket in self._released.get(process.name, ()):
            self.violated(f"L13: {process} reads {piece.snapshot.path} after it released {piece.bucket}")
