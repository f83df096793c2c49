"""The KV snapshot leases of an application: what they pin, and how they are released."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from fluss_tiering.client import TieringClient, lease_latest_snapshots
from fluss_tiering.model.closing import Closing
from fluss_tiering.model.errors import SERVER_AWAY, ErrorCode, FlussTieringError
from fluss_tiering.model.table import BucketInfo, KvSnapshot, TableBucket, TableInfo, TablePath
from fluss_tiering.model.tiering import Claim
from fluss_tiering.plural import counted
from fluss_tiering.spark.retry import Retry
from fluss_tiering.spark.round.keepalive import KeepAlive
from fluss_tiering.spark.runtime import SYSTEM, Queue, Runtime

_CLOSE_TIMEOUT_S: Final = 30.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease under which an application works.

    Attributes:
        attempt_token: The token of the attempt that acquired the lease. A release with an older token does nothing.
        duration_ms: How long the lease lasts after each renewal, in milliseconds.
        served: Whether the server offers leases. If it does not, rounds read snapshots that nothing pins.
        pinned: The snapshots that the lease pins when the application begins: table id -> bucket -> snapshot id.
    """

    lease_id: str
    attempt_token: int | None
    duration_ms: int
    served: bool = True
    pinned: Mapping[int, Mapping[TableBucket, int]] = field(default_factory=dict)


def open_lease(
    client: TieringClient,
    paths: Sequence[TablePath],
    *,
    lease_id: str | None,
    attempt_token: int | None,
    duration_ms: int,
) -> Lease:
    """Return the lease that an application was given, or acquire one for all its tables before any table is read.

    If the server refuses the snapshots of a table now, the round of this table leases them. When that fails, no other
    table is affected.

    Raises:
        FlussTieringError: UNAVAILABLE if the server cannot be reached.
    """
    try:
        if lease_id is None:
            lease_id = f"fluss-tiering-{uuid.uuid4()}"
            attempt_token = _acquired_token(client, lease_id, paths, duration_ms)
        return Lease(lease_id, attempt_token, duration_ms, pinned=pinned_by_table(client, lease_id))
    except FlussTieringError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION or lease_id is None:
            raise
        logger.warning("the server has no KV snapshot leases, so tables are tiered without a lease: %s", error)
        return Lease(lease_id, attempt_token, duration_ms, served=False)


def _acquired_token(client: TieringClient, lease_id: str, paths: Sequence[TablePath], duration_ms: int) -> int | None:
    try:
        return lease_latest_snapshots(client, lease_id, paths, duration_ms).attempt_token
    except FlussTieringError as error:
        if error.code in {*SERVER_AWAY, ErrorCode.UNSUPPORTED_VERSION}:
            raise
        logger.warning(
            "not all KV snapshots could be leased, so each round leases its own: lease_id=%s: %s", lease_id, error
        )
        return None


def pinned_by_table(client: TieringClient, lease_id: str) -> dict[int, dict[TableBucket, int]]:
    """Return what a lease pins, as table id -> bucket -> snapshot id; an empty mapping for a lease that is gone."""
    pinned: dict[int, dict[TableBucket, int]] = {}
    for lease in client.list_leases(lease_id):
        for bucket, snapshot_id in lease.snapshots.items():
            pinned.setdefault(bucket.table_id, {})[bucket] = snapshot_id
    return pinned


class TableLease:
    """The snapshots that are pinned for one table: by the application's lease, and by a lease of its own round."""

    def __init__(self, client: TieringClient, keepalive: KeepAlive, lease: Lease, table: TableInfo) -> None:
        self._client = client
        self._keepalive = keepalive
        self._lease = lease
        self._table = table
        self._held: dict[str, tuple[set[TableBucket], int | None]] = {}

    def hold(self, buckets: set[TableBucket]) -> None:
        """Keep these buckets pinned: the application's lease, which pins them, is renewed until `release`."""
        self._hold(self._lease.lease_id, buckets, self._lease.attempt_token)

    def snapshots(self, claim: Claim, buckets: Sequence[BucketInfo]) -> Mapping[TableBucket, KvSnapshot]:
        """Return the pinned snapshots of buckets that were never tiered, after a check that they exist.

        If the server offers no leases, these are the latest snapshots. If the application's lease does not pin all of
        them, because the table was empty then or the lease has expired, they are leased now. The new lease has an id
        of its own: another acquire under the given id would make the token of its owner an old one.

        Raises:
            FlussTieringError: KV_SNAPSHOT_NOT_EXIST if snapshots are deleted again and again while they are leased;
                UNAVAILABLE if the server cannot be reached.
        """
        wanted = {info.bucket for info in buckets if info.log_end_offset > 0}
        if not wanted:
            return {}
        if not self._lease.served:
            return {each.bucket: each for info in buckets if (each := info.latest_kv_snapshot) is not None}
        found = self._metadata(self._lease.lease_id, wanted)
        if found.keys() == wanted:
            return found
        lease_id = f"{self._lease.lease_id}/{claim.table_id}.{claim.tiering_epoch}"
        logger.info(
            "leasing the KV snapshots of %s that the application's lease does not pin: lease_id=%s",
            claim.path,
            lease_id,
        )
        acquired = lease_latest_snapshots(self._client, lease_id, [self._table.path], self._lease.duration_ms)
        self._hold(lease_id, wanted, acquired.attempt_token)
        return self._metadata(lease_id, wanted)

    def release(self, releaser: Releaser) -> None:
        """Release everything that is pinned for the table."""
        for lease_id, (buckets, token) in self._held.items():
            self._keepalive.let_go(lease_id, self._table.table_id)
            releaser.release(lease_id, buckets, token)

    def _hold(self, lease_id: str, buckets: set[TableBucket], token: int | None) -> None:
        if buckets:
            self._held[lease_id] = (buckets, token)
            self._keepalive.hold(lease_id, self._table.table_id)

    def _metadata(self, lease_id: str, wanted: set[TableBucket]) -> dict[TableBucket, KvSnapshot]:
        """Return the snapshots of a lease, or none if one of them is gone; the latest are then leased instead."""
        pinned = pinned_by_table(self._client, lease_id).get(self._table.table_id, {})
        chosen = [(bucket, snapshot_id) for bucket, snapshot_id in pinned.items() if bucket in wanted]
        if not chosen:
            return {}
        try:
            return {snapshot.bucket: snapshot for snapshot in self._client.kv_snapshot_metadata(chosen)}
        except FlussTieringError as error:
            if error.code is not ErrorCode.KV_SNAPSHOT_NOT_EXIST:
                raise
            logger.warning("a leased KV snapshot of %s is gone: lease_id=%s: %s", self._table.path, lease_id, error)
            return {}


class Releaser(Closing):
    """Releases buckets in a thread of its own, and tries again until the server confirms the release.

    Buckets that cannot be released before the application ends stay pinned until the lease expires.

    Args:
        close_timeout_s: How long `close` waits for releases that are not confirmed yet, in seconds.
        runtime: The clock and the threads of the application.
    """

    def __init__(
        self, client: TieringClient, close_timeout_s: float = _CLOSE_TIMEOUT_S, runtime: Runtime = SYSTEM
    ) -> None:
        self._client = client
        self._close_timeout_s = close_timeout_s
        self._requests: Queue[tuple[str, set[TableBucket], int | None] | None] = runtime.new_queue()
        self._given_up = runtime.new_event()
        self._thread = runtime.new_thread(self._run, "fluss-tiering-releaser")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def close(self) -> None:
        """Wait until everything is released or the time-out is over."""
        self._requests.put(None)
        self._thread.join(self._close_timeout_s)
        self._given_up.set()
        self._thread.join()

    def release(self, lease_id: str, buckets: set[TableBucket], attempt_token: int | None) -> None:
        """Release the buckets soon. The call does not wait for it."""
        self._requests.put((lease_id, buckets, attempt_token))

    def _run(self) -> None:
        retry = Retry(self._given_up, first_pause_s=0.5, longest_pause_s=30.0)
        while (request := self._requests.get()) is not None:
            lease_id, buckets, attempt_token = request
            try:
                retry(self._client.release_lease, lease_id, buckets, attempt_token=attempt_token)
            except FlussTieringError as error:
                logger.warning(
                    "lease %s keeps %s until it expires: %s", lease_id, counted(len(buckets), "bucket"), error
                )
