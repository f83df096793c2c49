"""Changes of many pins, in several turns of the control thread, so that heartbeats and other calls come in between.

A change that fails or whose server dies half-way has changed a part: an acquire has pinned some snapshots without
beginning its attempt, a release has released some buckets. Repeating the call finishes it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, TypeAlias

from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.lease import LeaseDrop
from fluss_tiering.model.table import TableBucket
from fluss_tiering.server.leases.manager import PINS_AT_ONCE, KvSnapshotLeaseManager
from fluss_tiering.server.store.records import LeaseAttempt

Control: TypeAlias = Callable[..., Awaitable[Any]]
"""Runs a function in the control thread: `ServerThreads.control`."""


async def pin_ahead(
    control: Control,
    leases: KvSnapshotLeaseManager,
    lease_id: str,
    duration_ms: int,
    snapshots: Mapping[TableBucket, int],
    *,
    attempt: LeaseAttempt | None = None,
) -> None:
    """Pin snapshots before an acquire of them, except for as many as the acquire itself may pin."""
    rest = iter(snapshots.items())
    for _ in range((len(snapshots) - 1) // PINS_AT_ONCE):
        await control(leases.pin_ahead, lease_id, duration_ms, dict(islice(rest, PINS_AT_ONCE)), attempt)


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
            await _release_most(control, leases, lease_id, attempt_token, expired=True)
        turn.append(lease_id)
        pins += snapshots
    await control(leases.drop_expired, turn)
    while await control(leases.prune_attempts):
        pass


async def _release_most(
    control: Control, leases: KvSnapshotLeaseManager, lease_id: str, attempt_token: int, *, expired: bool = False
) -> None:
    while await control(leases.release_some, lease_id, attempt_token, PINS_AT_ONCE, expired=expired):
        pass
