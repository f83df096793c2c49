"""Tables with a history, on a real tiering server: what an application would have reported of them."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from engine_support import descriptor, put
from fluss_tiering.client import TieringClient, lease_latest_snapshots
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.lake import MaintenanceReport
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import Claim, HeartbeatEntry, RoundOrigin, TieringStats

OUT_OF_SPACE = (
    "No space left on device: executor 3 could not write s3://lake/shop/orders/data/00003-1.parquet. "
    "The round ends; free space for spark.local.dir, then the next try goes on.\n"
    "  caused by: OSError(28, 'No space left on device')\n"
    "  at write_piece(bucket 3, offsets 120000 to 180000)"
)
MISSING = (
    "Metadata file missing: s3://lake/finance/payouts/metadata/00003-1f0c.metadata.json, which the catalog names. "
    "Restore the file, or register the newest metadata file that is left."
)
CONFLICT = (
    "Another writer added files to the lake table shop.customers since snapshot 7423190551020893411. "
    "The next round reads the new snapshot as its base."
)
ORIGIN = RoundOrigin(
    dag_id="fluss_tiering",
    run_id="scheduled__2026-11-22T03:15:00+00:00",
    task_id="tier.submit",
    map_index=0,
    try_number=2,
    spark_application_id="app-20261122031500-0042",
    spark_ui_url="https://spark.example.com:18080/history/app-20261122031500-0042",
)


class Tables:
    """Makes tables on a server, and plays the application that tiers them."""

    def __init__(self, client: TieringClient) -> None:
        self._client = client
        self._random = random.Random(1)

    def create(
        self, name: str, *, freshness: str = "1h", rows: int = 0, options: Mapping[str, str] | None = None
    ) -> TablePath:
        """Create a table that is tiered, with rows and with more options."""
        path = TablePath.parse(name)
        self._client.create_table(path, descriptor(num_buckets=2, freshness=freshness, properties=options))
        if rows:
            self.write(path, rows)
        return path

    def write(self, path: TablePath, rows: int) -> None:
        (table,) = self._client.get_tables([path])
        put(self._client, table, {number: f"name {number}" for number in range(rows)})

    def claim(self, path: TablePath, origin: RoundOrigin | None = ORIGIN) -> Claim:
        lease = f"application-{path}"
        token = lease_latest_snapshots(self._client, lease, [path], 6 * 3_600_000).attempt_token
        (claim,) = self._client.claim_tables([path], lease, token, "app-20261122031500-0042 on worker-3", origin=origin)
        if isinstance(claim, FlussTieringError):
            raise claim
        return claim

    def tier(self, path: TablePath, rows: int = 1000, *, seconds: float = 0) -> None:
        """Report a round that took some seconds and ended well; without rows, it commits no lake snapshot."""
        claim = self.claim(path)
        time.sleep(seconds)
        snapshot = self._random.getrandbits(62)
        stats = TieringStats(rows, rows * 34, 1 + rows // 100_000, snapshot) if rows else TieringStats()
        answer = self._client.heartbeat(finished=[HeartbeatEntry(claim.table_id, claim.tiering_epoch, stats=stats)])
        assert not answer.finished_errors
        self._client.drop_lease(f"application-{path}")

    def fail(self, path: TablePath, error: str = OUT_OF_SPACE, *, seconds: float = 0) -> None:
        """Report a round that failed after some seconds."""
        claim = self.claim(path)
        time.sleep(seconds)
        answer = self._client.heartbeat(failed=[HeartbeatEntry(claim.table_id, claim.tiering_epoch, error)])
        assert not answer.failed_errors
        self._client.drop_lease(f"application-{path}")

    def interrupt(self, path: TablePath) -> None:
        """Report a round whose application was stopped."""
        claim = self.claim(path)
        entry = HeartbeatEntry(claim.table_id, claim.tiering_epoch, "cancelled by Ctrl-C", interrupted=True)
        self._client.heartbeat(failed=[entry])
        self._client.drop_lease(f"application-{path}")

    def park(self, path: TablePath, error: str = OUT_OF_SPACE) -> None:
        """Report ten rounds in a row that failed."""
        for _ in range(10):
            self.fail(path, error)

    def maintain(self, path: TablePath, done: MaintenanceReport) -> None:
        """Report maintenance of the lake table; the id of the table in the report does not matter."""
        (table,) = self._client.get_tables([path])
        self._client.heartbeat(maintained=[replace(done, table_id=table.table_id)])

    def create_many(self, prefix: str, number: int) -> Sequence[TablePath]:
        """Create tables without rows."""
        return [self.create(f"{prefix}_{index:05}") for index in range(number)]
