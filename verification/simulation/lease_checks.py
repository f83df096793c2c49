"""Compares leases with a reference: none is dropped early, none returns, no old attempt releases (L1-L10, L22)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from fluss_tiering.model.table import TableBucket
from fluss_tiering.server.core.managers import Managers
from fluss_tiering.wire.buckets import bucket_from_pb
from fluss_tiering.wire.leases import snapshots_from_pb
from simulation.scheduler import Scheduler

METHODS = frozenset(
    {"AcquireKvSnapshotLease", "RenewKvSnapshotLeases", "ReleaseKvSnapshotLease", "DropKvSnapshotLease"}
)
_SLACK_MS = 60_000
"""How much later a request may be handled that was begun and not acknowledged."""


@dataclass(slots=True)
class LeaseReference:
    """One lease, as its holders know it.

    Attributes:
        newest_token: The token of the newest acquire that was acknowledged.
        maybe_newer: Whether an acquire may be durable but was not acknowledged, because the server died.
        latest_expiration: The latest expiration that any renewal or acquire, acknowledged or not, may have set.
    """

    pins: dict[TableBucket, int] = field(default_factory=dict)
    expiration: int = 0
    latest_expiration: int = 0
    newest_token: int = 0
    maybe_newer: bool = False


class LeaseChecks:
    """Follows the requests of the leases' service."""

    def __init__(self, scheduler: Scheduler, violated: Callable[[str], None]) -> None:
        self._scheduler = scheduler
        self._violated = violated
        self._leases: dict[str, LeaseReference] = {}
        self._pinning: dict[str, LeaseReference] = {}
        self._max_token = 0

    def newest_token(self, lease_id: str) -> int:
        """Return the token of the newest attempt under the lease that somebody was told of."""
        return self._leases[lease_id].newest_token if lease_id in self._leases else 0

    def maybe_newer(self, lease_id: str) -> bool:
        """Return whether there may be an attempt that nobody was told of."""
        return lease_id in self._leases and self._leases[lease_id].maybe_newer

    def before(self) -> int:
        """Return the number that every token of a later acquire must exceed."""
        return self._max_token

    def after(self, method: str, request: Any, response: Any, floor: int) -> None:
        """Note a request that was acknowledged."""
        match method:
            case "AcquireKvSnapshotLease":
                self._acquired(request, response, floor)
            case "RenewKvSnapshotLeases":
                self._renewed(request, response)
            case "ReleaseKvSnapshotLease":
                buckets = [bucket_from_pb(each) for each in request.buckets_to_release]
                self._let_go(request, response, buckets)
            case "DropKvSnapshotLease":
                self._let_go(request, response, None)

    def never_acknowledged(self, method: str, request: Any) -> None:
        """Note that the server died during a request, which may have been done."""
        match method:
            case "AcquireKvSnapshotLease":
                lease = self._lease(request.lease_id)
                lease.maybe_newer = True
                lease.latest_expiration = max(
                    lease.latest_expiration, self._scheduler.now + request.lease_duration_ms + _SLACK_MS
                )
                for bucket, snapshot_id in snapshots_from_pb(request.snapshots_to_lease).items():
                    if lease.pins.get(bucket) != snapshot_id:
                        lease.pins.pop(bucket, None)
            case "RenewKvSnapshotLeases":
                for each in request.renewals:
                    lease = self._lease(each.lease_id)
                    expiration = self._scheduler.now + each.lease_duration_ms + _SLACK_MS
                    lease.latest_expiration = max(lease.latest_expiration, expiration)
                    # A renewal may also have made it shorter.
                    lease.expiration = min(lease.expiration, self._scheduler.now + each.lease_duration_ms - _SLACK_MS)
            case "ReleaseKvSnapshotLease":
                self._unpin(request.lease_id, [bucket_from_pb(each) for each in request.buckets_to_release])
            case "DropKvSnapshotLease":
                self._unpin(request.lease_id, None)

    def forget_table(self, table_id: int) -> None:
        """Forget the buckets of a dropped table, which are released."""
        for lease in self._pinning.values():
            lease.pins = {bucket: each for bucket, each in lease.pins.items() if bucket.table_id != table_id}

    def collected(self, bucket: TableBucket, snapshot_id: int) -> None:
        """Check a KV snapshot that is deleted."""
        for lease_id, lease in self._alive():
            if lease.pins.get(bucket) == snapshot_id:
                self._violated(f"L3, L11: snapshot {snapshot_id} of {bucket} is collected under lease {lease_id}")

    def check_held(self, managers: Managers) -> None:
        """Check that the manager has everything that was acknowledged and has not expired."""
        for lease_id, lease in self._alive():
            (held,) = managers.leases.leases(lease_id) or (None,)
            lost = {b: s for b, s in lease.pins.items() if held is None or held.snapshots.get(b) != s}
            if lost:
                self._violated(f"L3, L9, L22: lease {lease_id} no longer pins {lost}, until {lease.expiration}")

    def check_expired(self, managers: Managers, began_ms: int) -> None:
        """Check that no lease is left that had expired when the clean-up began."""
        for lease in managers.leases.leases():
            if lease.expiration_time < began_ms:
                self._violated(f"L9: lease {lease.lease_id} expired at {lease.expiration_time} and is still held")
        self._pinning = dict(self._alive())

    def _alive(self) -> Iterable[tuple[str, LeaseReference]]:
        now = self._scheduler.now
        return [(lease_id, each) for lease_id, each in self._pinning.items() if each.pins and each.expiration >= now]

    def _acquired(self, request: Any, response: Any, floor: int) -> None:
        lease, token = self._lease(request.lease_id), response.attempt_token
        if token <= floor or token == lease.newest_token:
            self._violated(f"L22: attempt token {token} of lease {request.lease_id} is not above {floor}")
        self._max_token = max(self._max_token, token)
        if token < lease.newest_token:
            # Both acquires were under way at once. The newer one is answered already, and decides what is pinned.
            return
        lease.newest_token, lease.maybe_newer = token, False
        unavailable = snapshots_from_pb(response.unavailable_snapshots)
        asked = snapshots_from_pb(request.snapshots_to_lease)
        if lease.expiration < self._scheduler.now:
            # The checker may have dropped what it pinned before.
            lease.pins.clear()
        lease.pins |= {bucket: each for bucket, each in asked.items() if bucket not in unavailable}
        self._pinning[request.lease_id] = lease
        if response.expiration_time:
            lease.expiration = lease.latest_expiration = response.expiration_time
            if response.expiration_time < self._scheduler.now + request.lease_duration_ms - _SLACK_MS:
                self._violated(f"L1: lease {request.lease_id} expires before its duration")

    def _renewed(self, request: Any, response: Any) -> None:
        now = self._scheduler.now
        for asked, answer in zip(request.renewals, response.renewed, strict=True):
            lease = self._lease(asked.lease_id)
            if answer.HasField("error"):
                if lease.pins and lease.expiration >= now:
                    self._violated(f"L4: lease {asked.lease_id} is pinned until {lease.expiration}, and not renewed")
                continue
            if lease.latest_expiration < now:
                self._violated(f"L5: lease {asked.lease_id} was renewed after {lease.latest_expiration}, its end")
            lease.expiration = lease.latest_expiration = answer.expiration_time

    def _let_go(self, request: Any, response: Any, buckets: list[TableBucket] | None) -> None:
        lease = self._lease(request.lease_id)
        stale = request.HasField("attempt_token") and request.attempt_token < lease.newest_token
        if stale and not response.stale_attempt:
            self._violated(
                f"L22: attempt {request.attempt_token} let go of lease {request.lease_id} of {lease.newest_token}"
            )
        if response.stale_attempt:
            if not stale and not lease.maybe_newer:
                self._violated(f"L22: attempt {request.attempt_token} of lease {request.lease_id} is the newest one")
            return
        self._unpin(request.lease_id, buckets)

    def _unpin(self, lease_id: str, buckets: list[TableBucket] | None) -> None:
        lease = self._lease(lease_id)
        for bucket in list(lease.pins) if buckets is None else buckets:
            lease.pins.pop(bucket, None)

    def _lease(self, lease_id: str) -> LeaseReference:
        return self._leases.setdefault(lease_id, LeaseReference())
