"""Changes of many pins, in several turns of the control thread, so that heartbeats and other calls come in between.

A change that fails or whose server dies half-way has changed a part: an acquire has begun its attempt and pinned some
snapshots, a release has released some buckets. Repeating the call finishes it. Nobody was told the token of such an
acquire, so nobody relies on its pins. The attempt before it loses pins only after it was superseded.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, TypeAlias

from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import TableBucket
from fluss_tiering.model.tiering import AcquiredLease, LeaseDrop
from fluss_tiering.server.core.leases.manager import PINS_AT_ONCE, KvSnapshotLeaseManager

Control: TypeAlias = Callable[..., Awaitable[Any]]
"""Runs a function in the control thread: `ServerThreads.control`."""


async def acquire(
    control: Control,
    begin: Callable[[Mapping[TableBucket, int]], AcquiredLease],
    pin_rest: Callable[[str, int, Mapping[TableBucket, int]], None],
    snapshots: Mapping[TableBucket, int],
) -> AcquiredLease:
    """Pin snapshots and begin an attempt, which makes all older ones stale before they lose pins.

    Args:
        control: Runs functions in the control thread.
        begin: Pins the first snapshots and begins the attempt: `KvSnapshotLeaseManager.acquire`.
        pin_rest: Pins the others: `KvSnapshotLeaseManager.pin_rest`.
        snapshots: The snapshots to pin, by bucket.
    """
    rest = iter(snapshots.items())
    acquired: AcquiredLease = await control(begin, dict(islice(rest, PINS_AT_ONCE)))
    while some := dict(islice(rest, PINS_AT_ONCE)):
        await control(pin_rest, acquired.lease_id, acquired.attempt_token, some)
    return acquired


async def renew(
    control: Control, leases: KvSnapshotLeaseManager, durations_ms: Sequence[tuple[str, int]]
) -> list[int | FlussTieringError]:
    """Renew leases: see `KvSnapshotLeaseManager.renew`."""
    answers: list[int | FlussTieringError] = []
    for first in range(0, len(durations_ms), PINS_AT_ONCE):
        answers += await control(leases.renew, durations_ms[first : first + PINS_AT_ONCE])
    return answers


async def release(
    control: Control,
    leases: KvSnapshotLeaseManager,
    lease_id: str,
    buckets: Iterable[TableBucket],
    attempt_token: int | None,
) -> bool:
    """Release buckets of a lease: see `KvSnapshotLeaseManager.release`."""
    rest = iter(buckets)
    released: bool = await control(leases.release, lease_id, list(islice(rest, PINS_AT_ONCE)), attempt_token)
    while released and (some := list(islice(rest, PINS_AT_ONCE))):
        released = await control(leases.release, lease_id, some, attempt_token)
    return released


async def drop(control: Control, leases: KvSnapshotLeaseManager, lease_id: str, attempt_token: int | None) -> LeaseDrop:
    """Drop a lease: see `KvSnapshotLeaseManager.drop`."""
    dropped_token: int | None = await control(leases.token_to_drop, lease_id, attempt_token)
    if dropped_token is not None:
        await _release_most(control, leases, lease_id, dropped_token)
    dropped: LeaseDrop = await control(leases.drop, lease_id, attempt_token)
    return dropped


async def drop_expired(control: Control, leases: KvSnapshotLeaseManager) -> None:
    """Drop the leases that have expired, and forget old attempts."""
    expired: list[tuple[str, int, int]] = await control(leases.expired)
    turn: list[str] = []
    pins = 0
    for lease_id, attempt_token, snapshots in expired:
        if pins + snapshots > PINS_AT_ONCE and turn:
            await control(leases.drop_expired, turn)
            turn, pins = [], 0
        if snapshots > PINS_AT_ONCE:
            await _release_most(control, leases, lease_id, attempt_token)
        turn.append(lease_id)
        pins += snapshots
    await control(leases.drop_expired, turn)
    while await control(leases.prune_attempts):
        pass


async def _release_most(control: Control, leases: KvSnapshotLeaseManager, lease_id: str, attempt_token: int) -> None:
    while await control(leases.release_some, lease_id, attempt_token, PINS_AT_ONCE):
        pass
