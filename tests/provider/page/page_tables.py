"""Tables with a history, on a real tiering server: what an application would have reported of them."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from fluss_tiering.client import TieringClient, lease_latest_snapshots
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.maintenance import MaintenanceReport
from fluss_tiering.model.table import Column, DataType, TableDescriptor, TablePath, WriteKind
from fluss_tiering.model.tiering import Claim, HeartbeatEntry, TieringStats

OUT_OF_SPACE = (
    "Executor 3 could not write s3://lake/shop/orders/data/00003-1.parquet: No space left on device. "
    "The round ends; free space for spark.local.dir, then the next try goes on.\n"
    "  caused by: OSError(28, 'No space left on device')\n"
    "  at write_piece(bucket 3, offsets 120000 to 180000)"
)
CONFLICT = (
    "Another writer added files to the lake table shop.customers since snapshot 7423190551020893411. "
    "The next round reads the new snapshot as its base."
)


class Tables:
    """Makes tables on a server, and plays the application that tiers them."""

    def __init__(self, client: TieringClient) -> None:
        self._client = client
        self._random = random.Random(1)

    def create(self, name: str, *, freshness: str = "1h", rows: int = 0) -> TablePath:
        """Create a table that is tiered, with rows."""
        path = TablePath.parse(name)
        columns = (Column("id", DataType.parse("BIGINT NOT NULL")), Column("name", DataType.parse("STRING")))
        self._client.create_table(
            path,
            TableDescriptor(
                columns,
                primary_key=("id",),
                bucket_keys=("id",),
                num_buckets=2,
                properties={"table.datalake.enabled": "true", "table.datalake.freshness": freshness},
            ),
        )
        if rows:
            self.write(path, rows)
        return path

    def write(self, path: TablePath, rows: int) -> None:
        schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
        data = pa.table({"id": range(rows), "name": [f"name {i}" for i in range(rows)]}, schema=schema)
        list(self._client.write_rows(path, WriteKind.UPSERT, [data]))

    def claim(self, path: TablePath) -> Claim:
        lease = f"application-{path}"
        token = lease_latest_snapshots(self._client, lease, [path], 6 * 3_600_000).attempt_token
        (claim,) = self._client.claim_tables([path], lease, token, "spark-app-20261122")
        if isinstance(claim, FlussTieringError):
            raise claim
        return claim

    def tier(self, path: TablePath, rows: int = 1000, *, seconds: float = 0) -> None:
        """Report a round that took some seconds and ended well."""
        claim = self.claim(path)
        time.sleep(seconds)
        snapshot = self._random.getrandbits(62)
        stats = TieringStats(rows, rows * 34, 1 + rows // 100_000, snapshot)
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
