"""The acquire step of a round: pin the latest KV snapshots that the round will read, and prove that they exist."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lease import AcquiredLease
from fluss_tiering.model.table import TableBucket, TablePath

if TYPE_CHECKING:
    from fluss_tiering.client.client import TieringClient

_MAX_PLANS: Final = 3

logger = logging.getLogger(__name__)


def lease_latest_snapshots(
    client: TieringClient, lease_id: str, paths: Sequence[TablePath], duration_ms: int
) -> AcquiredLease:
    """Leases the latest KV snapshot of every never-tiered bucket with data of the primary-key tables among `paths`.

    All are leased before any is read (L12). One that does not exist any more is planned again from the latest (L7).

    Raises:
        FlussTieringError: TABLE_NOT_EXIST; KV_SNAPSHOT_NOT_EXIST when snapshots kept vanishing, and then nothing stays
            leased.
    """
    to_plan = _never_tiered(client, [table.path for table in client.get_tables(paths) if table.has_primary_key])
    for _ in range(_MAX_PLANS):
        planned = _plan(client, to_plan)
        acquired = client.acquire_lease(lease_id, duration_ms, planned, allow_empty=True)
        leased = {bucket: id_ for bucket, id_ in planned.items() if bucket not in acquired.unavailable_snapshots}
        gone = {**acquired.unavailable_snapshots, **_missing(client, leased)}
        if not gone:
            return acquired
        named = ", ".join(f"snapshot {snapshot_id} of {bucket}" for bucket, snapshot_id in gone.items())
        logger.warning("KV snapshots cannot be leased, they are gone: lease_id=%s unavailable=[%s]", lease_id, named)
        to_plan = {path: buckets & gone.keys() for path, buckets in to_plan.items() if buckets & gone.keys()}
    client.drop_lease(lease_id, attempt_token=acquired.attempt_token)
    raise FlussTieringError(
        ErrorCode.KV_SNAPSHOT_NOT_EXIST,
        f"lease {lease_id}: after {_MAX_PLANS} plans with the latest KV snapshots some were gone again ({named}): "
        "let the server keep more snapshots of a bucket",
    )


def _never_tiered(client: TieringClient, paths: Sequence[TablePath]) -> dict[TablePath, set[TableBucket]]:
    """The buckets that have data of which nothing is in the lake."""
    never_tiered = {}
    for path, infos in client.list_buckets(paths).items() if paths else ():
        snapshot = client.lake_snapshot(path)
        tiered = {} if snapshot is None else snapshot.log_end_offsets
        never_tiered[path] = {info.bucket for info in infos if info.log_end_offset > 0 and info.bucket not in tiered}
    return {path: buckets for path, buckets in never_tiered.items() if buckets}


def _plan(client: TieringClient, buckets: Mapping[TablePath, set[TableBucket]]) -> dict[TableBucket, int]:
    """Bucket -> id of its latest KV snapshot, which is taken now where there is none."""
    latest: dict[TableBucket, int] = {}
    to_take = []
    for path, infos in client.list_buckets(list(buckets)).items() if buckets else ():
        snapshots = [info.latest_kv_snapshot for info in infos if info.bucket in buckets[path]]
        latest.update({each.bucket: each.snapshot_id for each in snapshots if each is not None})
        if None in snapshots:
            to_take.append(path)
    if to_take:
        wanted = set[TableBucket]().union(*(buckets[path] for path in to_take)) - latest.keys()
        for taken in client.take_kv_snapshots(to_take).values():
            latest.update({each.bucket: each.snapshot_id for each in taken if each.bucket in wanted})
    return latest


def _missing(client: TieringClient, snapshots: Mapping[TableBucket, int]) -> dict[TableBucket, int]:
    """Those of the snapshots whose metadata cannot be read any more."""
    if not snapshots or _exist(client, list(snapshots.items())):
        return {}
    return {bucket: id_ for bucket, id_ in snapshots.items() if not _exist(client, [(bucket, id_)])}


def _exist(client: TieringClient, snapshots: Sequence[tuple[TableBucket, int]]) -> bool:
    try:
        client.kv_snapshot_metadata(snapshots)
    except FlussTieringError as error:
        if error.code is not ErrorCode.KV_SNAPSHOT_NOT_EXIST:
            raise
        return False
    return True
