"""The first step of a round: lease the KV snapshots that the round will read, and check that they exist."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import BucketInfo, KvSnapshot, TableBucket, TablePath
from fluss_tiering.model.tiering import AcquiredLease

if TYPE_CHECKING:
    from fluss_tiering.client.client import TieringClient

_MAX_PLANS: Final = 3
_SNAPSHOTS_PER_CALL: Final = 64
"""How many KV snapshots a call takes. A slow disk needs seconds for them, and a call has a deadline."""

logger = logging.getLogger(__name__)


def lease_latest_snapshots(
    client: TieringClient, lease_id: str, paths: Sequence[TablePath], duration_ms: int
) -> AcquiredLease:
    """Lease the KV snapshots that a round of these tables will read, and begin an attempt.

    These are the latest KV snapshots of the buckets that have data but were never tiered. Tables without a primary key
    have no KV snapshots. All snapshots are leased before any of them is read. If one of them no longer exists, it is
    replaced by the latest snapshot of its bucket.

    Args:
        client: The client of the tiering server.
        lease_id: The id of the lease. An existing lease of this id is renewed, and a new attempt begins under it.
        paths: The tables of the round.
        duration_ms: The time in milliseconds after which the lease expires unless it is renewed.

    Returns:
        The lease as acquired, with the token of the attempt.

    Raises:
        FlussTieringError: TABLE_NOT_EXIST if one of the tables does not exist; KV_SNAPSHOT_NOT_EXIST if snapshots were
            removed again and again before they could be leased. Nothing is leased then.
    """
    to_plan = _to_snapshot(client, [table.path for table in client.get_tables(paths) if table.has_primary_key])
    for _ in range(_MAX_PLANS):
        planned = _plan(client, to_plan)
        acquired = client.acquire_lease(lease_id, duration_ms, planned, allow_empty=True)
        leased = {bucket: id_ for bucket, id_ in planned.items() if bucket not in acquired.unavailable_snapshots}
        gone = {**acquired.unavailable_snapshots, **_missing(client, leased)}
        if not gone:
            return acquired
        named = ", ".join(f"snapshot {snapshot_id} of {bucket}" for bucket, snapshot_id in gone.items())
        logger.warning(
            "some KV snapshots cannot be leased because they no longer exist: lease_id=%s unavailable=[%s]",
            lease_id,
            named,
        )
        to_plan = {path: buckets & gone.keys() for path, buckets in to_plan.items() if buckets & gone.keys()}
    client.drop_lease(lease_id, attempt_token=acquired.attempt_token)
    raise FlussTieringError(
        ErrorCode.KV_SNAPSHOT_NOT_EXIST,
        f"lease {lease_id}: KV snapshots were removed before they could be leased, {_MAX_PLANS} times in a row "
        f"({named}): let the server keep more snapshots of each bucket",
    )


def _to_snapshot(client: TieringClient, paths: Sequence[TablePath]) -> dict[TablePath, set[TableBucket]]:
    """Return the buckets of each table that have data that only a snapshot has.

    They were never tiered, or their log was deleted before it was tiered.
    """
    wanted = {}
    for path, infos in client.list_buckets(paths).items() if paths else ():
        snapshot = client.lake_snapshot(path)
        tiered = {} if snapshot is None else snapshot.log_end_offsets
        wanted[path] = {
            info.bucket
            for info in infos
            if info.log_end_offset > 0 and (info.bucket not in tiered or tiered[info.bucket] < info.log_start_offset)
        }
    return {path: buckets for path, buckets in wanted.items() if buckets}


def _plan(client: TieringClient, buckets: Mapping[TablePath, set[TableBucket]]) -> dict[TableBucket, int]:
    """Return the id of each bucket's latest KV snapshot; take a snapshot now if a bucket has none to go on from."""
    latest: dict[TableBucket, int] = {}
    to_take: list[tuple[TablePath, TableBucket]] = []
    for path, infos in client.list_buckets(list(buckets)).items() if buckets else ():
        snapshots = [_usable(info) for info in infos if info.bucket in buckets[path]]
        latest.update({each.bucket: each.snapshot_id for each in snapshots if each is not None})
        to_take += [(path, bucket) for bucket in buckets[path] - latest.keys()]
    for first in range(0, len(to_take), _SNAPSHOTS_PER_CALL):
        some = to_take[first : first + _SNAPSHOTS_PER_CALL]
        wanted = {bucket for _, bucket in some}
        for taken in client.take_kv_snapshots(list(dict(some)), wanted).values():
            # A server that does not know the buckets of this request takes a snapshot of each.
            latest.update({each.bucket: each.snapshot_id for each in taken if each.bucket in wanted})
    return latest


def _usable(info: BucketInfo) -> KvSnapshot | None:
    """Return the bucket's latest KV snapshot if the log still has what follows it."""
    latest = info.latest_kv_snapshot
    return None if latest is None or latest.log_offset < info.log_start_offset else latest


def _missing(client: TieringClient, snapshots: Mapping[TableBucket, int]) -> dict[TableBucket, int]:
    """Return those of the snapshots that no longer exist."""
    if not snapshots or _exist(client, list(snapshots.items())):
        return {}
    return {bucket: id_ for bucket, id_ in snapshots.items() if not _exist(client, [(bucket, id_)])}


def _exist(client: TieringClient, snapshots: Sequence[tuple[TableBucket, int]]) -> bool:
    """Tell whether all of the snapshots exist."""
    try:
        client.kv_snapshot_metadata(snapshots)
    except FlussTieringError as error:
        if error.code is not ErrorCode.KV_SNAPSHOT_NOT_EXIST:
            raise
        return False
    return True
