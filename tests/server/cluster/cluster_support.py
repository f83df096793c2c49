"""A server in front of a real Fluss cluster, and rounds of its tables as drivers would run them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import engine_support
from engine_support import OpenServer, claimed, descriptor, log_ends, status
from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import KvSnapshot, TableBucket, TableInfo, TablePath
from fluss_tiering.model.tiering import Claim, HeartbeatEntry, TieringState, TieringStatus
from fluss_tiering.server.backends.cluster.backend import ActiveClusterBackend
from fluss_tiering.storage.fluss.rpc.calls.kv import kv_snapshot_files
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from waiting import wait_until

T = TypeVar("T")

_NUMBERS = itertools.count()
_SNAPSHOT_IDS = itertools.count(1000)


def lake_table(client: TieringClient, name: str, *, freshness: str = "1s", **options: Any) -> TableInfo:
    """A table of its own that is tiered."""
    for attempt in range(3):
        path = TablePath("cluster", f"{name}_{next(_NUMBERS)}")
        try:
            return client.create_table(path, descriptor(freshness=freshness, **options))
        except FlussTieringError as error:
            # A coordinator that is busy may miss a new table, which then stays without leaders.
            if error.code is not ErrorCode.UNAVAILABLE or attempt == 2:
                raise
    raise AssertionError


def put(client: TieringClient, table: TableInfo, count: int, first: int = 0) -> None:
    engine_support.put(client, table, {each: f"name {each}" for each in range(first, first + count)})


def wait_for(client: TieringClient, table: TableInfo, state: TieringState) -> TieringStatus:
    """The table's status once it is in that state."""

    def reached() -> TieringStatus | None:
        found = status(client, table)
        return found if found.state is state else None

    return wait_until(reached)


def claim(client: TieringClient, table: TableInfo, lease_id: str = "lease") -> Claim:
    return claimed(client, table, lease_id)


def commit(
    client: TieringClient, table: TableInfo, held: Claim, offsets: Mapping[TableBucket, int] | None = None
) -> int:
    """Prepares and commits a lake snapshot of all that the table has; its id."""
    offsets = log_ends(client, table) if offsets is None else offsets
    path = client.prepare_lake_snapshot(table, held.tiering_epoch, offsets)
    snapshot_id = next(_SNAPSHOT_IDS)
    client.commit_lake_snapshot(table, held.tiering_epoch, snapshot_id, offsets, path, f"commit-{snapshot_id}")
    return snapshot_id


def finish(client: TieringClient, held: Claim, *, forced: bool = False) -> None:
    entry = HeartbeatEntry(held.table_id, held.tiering_epoch)
    client.heartbeat(finished=[entry], force_finished=[held.table_id] if forced else [])


def fail(client: TieringClient, held: Claim, error: str = "no such catalog") -> None:
    client.heartbeat(failed=[HeartbeatEntry(held.table_id, held.tiering_epoch, error_message=error)])


class ClusterServer(OpenServer):
    """A server of a cluster whose components can be looked at."""

    def __init__(self, data_dir: Path, bootstrap: str, **settings: Any) -> None:
        super().__init__(data_dir, **{"fluss": bootstrap, "metrics_enabled": False, **settings})

    @property
    def backend(self) -> ActiveClusterBackend:
        assert isinstance(self.components.backend, ActiveClusterBackend)
        return self.components.backend

    def holds(self, table: TableInfo) -> bool:
        """Whether the table is held at the cluster's coordinator."""
        return table.table_id in self.backend.claims.held


def entry_of(server: ClusterServer, table: TableInfo) -> HeartbeatEntry:
    """What heartbeats to the cluster say of a table that is held."""
    return server.backend.claims._held[table.table_id].entry


def snapshot_behind(client: TieringClient, table: TableInfo, log_offset: int) -> KvSnapshot:
    """A KV snapshot of bucket 0 with the log up to an offset in it, once there is one."""

    def newest() -> KvSnapshot | None:
        latest = client.list_buckets([table.path])[table.path][0].latest_kv_snapshot
        return latest if latest is not None and latest.log_offset >= log_offset else None

    return wait_until(newest)


def next_snapshot(client: TieringClient, table: TableInfo) -> KvSnapshot:
    """A newer KV snapshot of bucket 0, once the cluster has taken it of a row that is written now."""
    (bucket,) = client.list_buckets([table.path])[table.path]
    put(client, table, 1, first=bucket.log_end_offset)
    return snapshot_behind(client, table, bucket.log_end_offset + 1)


def exists(fluss: FlussClient, snapshot: KvSnapshot) -> bool:
    """Whether the cluster still has it: the proof, which a lease is not."""
    try:
        fluss.call(kv_snapshot_files(snapshot.bucket, snapshot.snapshot_id))
    except FlussTieringError as error:
        if error.code is not ErrorCode.KV_SNAPSHOT_NOT_EXIST:
            raise
        return False
    return True
