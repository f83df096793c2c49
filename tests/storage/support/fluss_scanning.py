"""Scans of a real cluster's buckets, opened and used as servers and executors do it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from fluss_tables import descriptor, new_path, rows
from refusals import refused

from fluss_support import FlussCluster
from fluss_tiering.formats.compacted.row import decode_values
from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.table import TableBucket, TableInfo, WriteKind
from fluss_tiering.storage.fluss.access import ClusterLink
from fluss_tiering.storage.fluss.reading import scan_session
from fluss_tiering.storage.fluss.reading.scan_session import ScanSession
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey
from fluss_tiering.storage.fluss.rpc.calls.kv import close_session, open_session
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from fluss_tiering.storage.fluss.storage import FlussStorage

PLACES = 8
"""How many sessions of a bucket Fluss allows by default."""
SMALL = 1_000
"""The size of small batches, in bytes."""


def open_storage(cluster: FlussCluster) -> FlussStorage:
    return FlussStorage.open(ClusterLink(cluster.bootstrap, None, FlussClient(cluster.bootstrap)), within=20)


class Scanning:
    """A scan that is opened and used as the server does it."""

    def __init__(self, storage: FlussStorage, table: TableInfo, bucket: TableBucket | None = None) -> None:
        self.admitted = self.lost = 0
        self.table = table
        self.log_offset, self.scan = storage.open_kv_scan(
            bucket or TableBucket(table.table_id, 0), admit=self._admit, on_lost=self._lose
        )

    def _admit(self) -> None:
        self.admitted += 1

    def _lose(self) -> None:
        self.lost += 1

    def rows(self, max_rows: int | None = None) -> dict[int, str]:
        assert self.scan is not None
        found: dict[int, str] = {}
        position = None
        while True:
            batch = self.scan.read(position, None, max_rows)
            records = decode_values(batch.values, self.table.descriptor.columns, self.table.schema_id)
            for row in records.to_pylist():
                assert row["id"] not in found
                found[row["id"]] = row["name"]
            if batch.next_position is None:
                return found
            position = batch.next_position


def upsert(storage: FlussStorage, table: TableInfo, first: int, end: int, name: str = "") -> int:
    """Return the log's end."""
    batch = rows(first, end)
    if name:
        batch = batch.set_column(1, "name", pa.array([name] * (end - first)))
    return max(storage.write(table.path, WriteKind.UPSERT, pa.Table.from_batches([batch])).values())


def new_table(storage: FlussStorage, **options) -> TableInfo:
    return storage.create_table(new_path(), descriptor(primary_key=True, **options))


class WatchedClient:
    """A client that notes each call of a scan, and passes each answer on after `alter`, which may raise an error."""

    def __init__(self, client: FlussClient, alter: Callable[[Any], Any] = lambda answer: answer) -> None:
        self._client = client
        self._alter = alter
        self.asked: list[str] = []

    def call(self, call: Any, **options: Any) -> Any:
        if call.api is not ApiKey.SCAN_KV:
            return self._client.call(call, **options)
        request = call.request
        opening = request.HasField("bucket_scan_req")
        self.asked.append("open" if opening else "close" if request.close_scanner else f"{request.call_seq_id}")
        return self._alter(self._client.call(call, **options))


def make_batches_small(monkeypatch) -> None:
    monkeypatch.setattr(scan_session, "BATCH_BYTES", SMALL)
    monkeypatch.setattr(ScanSession.take, "__defaults__", (SMALL,))


def bucket_of(table: TableInfo, bucket: int = 0) -> TableBucket:
    return TableBucket(table.table_id, bucket)


def free_places(fluss: FlussClient, table: TableInfo) -> int:
    """Return how many further sessions bucket 0 has room for."""
    bucket = bucket_of(table)
    opened: list[bytes] = []
    with refused(ErrorCode.TOO_MANY_SCANNERS):
        while True:
            opened.append(fluss.call(open_session(table.path, bucket, 1)).scanner_id)
    for scanner_id in opened:
        fluss.call(close_session(table.path, bucket, scanner_id))
    return len(opened)


def names(batches: Iterator[pa.RecordBatch]) -> dict[int, str]:
    """Return the names by id, and check that no id comes twice."""
    found: dict[int, str] = {}
    for batch in batches:
        for row in batch.to_pylist():
            assert row["id"] not in found
            found[row["id"]] = row["name"]
    return found
