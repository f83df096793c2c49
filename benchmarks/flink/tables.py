"""Loads the tables of the peer benchmark into a Fluss cluster with our own calls: fast, and evenly over the buckets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa

from benchmarks import rows
from fluss_tiering.formats.bucketing import assign_buckets
from fluss_tiering.formats.compacted.kv_batches import encode_kv_batch
from fluss_tiering.formats.compacted.row import encode_values
from fluss_tiering.formats.log.batch import encode_log_batch
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket, TableInfo, TablePath
from fluss_tiering.storage.fluss.rpc.calls.cluster import metadata
from fluss_tiering.storage.fluss.rpc.calls.kv import latest_kv_snapshots
from fluss_tiering.storage.fluss.rpc.calls.lake import lake_snapshot
from fluss_tiering.storage.fluss.rpc.calls.log import OffsetType, log_offset
from fluss_tiering.storage.fluss.rpc.calls.tables import alter_table, create_database, create_table, table
from fluss_tiering.storage.fluss.rpc.calls.writes import produce_log, put_kv
from fluss_tiering.storage.fluss.rpc.client import FlussClient

PartT = TypeVar("PartT")

BUCKETS: Final = 4

_FRESHNESS: Final = "table.datalake.freshness"
_NEVER: Final = "1d"
_DUE_SECONDS: Final = 30
_MARGIN_SECONDS: Final = 0.5
_WRITERS: Final = 4
_TIMEOUT_S: Final = 120.0


class BenchmarkTables:
    """Creates and loads tables of `benchmarks.rows` in a database of its own.

    Args:
        client: The client for the cluster.
        database: The database of the tables. It is created if it does not exist.
        coordinator_log: The coordinator's log, which says when it knows a table's new freshness.
    """

    def __init__(self, client: FlussClient, database: str, coordinator_log: Path) -> None:
        self._client = client
        self._database = database
        self._coordinator_log = coordinator_log
        self._settled: dict[TablePath, float] = {}
        client.call(create_database(database, ignore_if_exists=True))

    def create(self, name: str, *, primary_key: bool) -> TableInfo:
        """Create a table that is never due by itself, and return it when its buckets have leaders."""
        path = TablePath(self._database, name)
        descriptor = rows.descriptor(primary_key=primary_key, num_buckets=BUCKETS)
        self._client.call(create_table(path, descriptor))
        self._settled[path] = time.monotonic()
        self._wait_for(lambda: self._all_led(path), f"leaders of {path}")
        return self._client.call(table(path))

    def load(self, name: str, count: int, *, primary_key: bool = False) -> TableInfo:
        """Create a table with rows of the ids from 0 on. If it has a key, return when KV snapshots hold all rows."""
        info = self.create(name, primary_key=primary_key)
        if primary_key:
            self.upsert(info, rows.batches(0, count))
            self.wait_for_kv_snapshots(info)
        else:
            self.append(info, 0, count)
        return info

    def append(self, info: TableInfo, first_id: int, count: int) -> None:
        """Append rows to a log table; each batch goes to the next bucket."""
        batches = _split(rows.batches(first_id, count), BUCKETS)
        self._write(
            lambda numbered: self._client.call(
                produce_log(
                    info.path,
                    TableBucket(info.table_id, numbered[0] % BUCKETS),
                    encode_log_batch(
                        0, 0, numbered[1], schema_id=info.schema_id, change_types=None, compression="ZSTD"
                    ),
                )
            ),
            enumerate(batches),
        )

    def upsert(self, info: TableInfo, batches: Iterable[pa.RecordBatch]) -> None:
        """Upsert rows in a primary-key table."""
        self._put(info, batches, delete=False)

    def delete(self, info: TableInfo, batches: Iterable[pa.RecordBatch]) -> None:
        """Delete the rows with these keys from a primary-key table."""
        self._put(info, batches, delete=True)

    def wait_for_kv_snapshots(self, info: TableInfo) -> None:
        """Wait until the newest KV snapshot of each bucket holds all of its log."""
        buckets = [TableBucket(info.table_id, number) for number in range(BUCKETS)]
        ends = {bucket: self._client.call(log_offset(info.path, bucket, OffsetType.LATEST)) for bucket in buckets}

        def covered() -> bool:
            newest = self._client.call(latest_kv_snapshots(info.path))
            return all((each := newest.get(bucket)) and each.log_offset >= end for bucket, end in ends.items())

        self._wait_for(covered, f"KV snapshots of {info.path}")

    def make_pending(self, chosen: Sequence[TableInfo]) -> float:
        """Make the tables due now, and return when this was, in seconds since the epoch.

        A table is due if it was created or last tiered longer ago than its freshness. The freshness is short for a
        moment only, since a table that was tiered should not become due again. It is not too short, since Flink cuts a
        round that takes longer than the freshness, and may get the table in this moment.
        """
        youngest = max(self._settled[info.path] for info in chosen)
        time.sleep(max(0.0, youngest + _DUE_SECONDS + _MARGIN_SECONDS - time.monotonic()))
        written = self._coordinator_log.stat().st_size
        for info in chosen:
            self._client.call(alter_table(info.path, {_FRESHNESS: f"{_DUE_SECONDS}s"}))
        expected = {f"Updated lake freshness for table {info.table_id} from" for info in chosen}

        def known() -> bool:
            with self._coordinator_log.open() as log:
                log.seek(written)
                said = log.read()
            return all(each in said for each in expected)

        self._wait_for(known, f"the new freshness of {[str(info.path) for info in chosen]}")
        due = time.time()
        for info in chosen:
            self._client.call(alter_table(info.path, {_FRESHNESS: _NEVER}))
        return due

    def tiered(self, chosen: Iterable[TableInfo]) -> None:
        """Remember that rounds of these tables have ended."""
        for info in chosen:
            self._settled[info.path] = time.monotonic()

    def lake_snapshot_id(self, info: TableInfo) -> int | None:
        """Return the lake snapshot that the cluster knows; None before the first."""
        try:
            return self._client.call(lake_snapshot(info.path)).snapshot_id
        except FlussTieringError as error:
            if error.code is ErrorCode.LAKE_SNAPSHOT_NOT_EXIST:
                return None
            raise

    def _put(self, info: TableInfo, batches: Iterable[pa.RecordBatch], *, delete: bool) -> None:
        self._write(lambda batch: self._put_batch(info, batch, delete=delete), batches)

    def _put_batch(self, info: TableInfo, batch: pa.RecordBatch, *, delete: bool) -> None:
        ids = batch.column("id")
        buckets = assign_buckets(ids, info.descriptor.columns[0].data_type, BUCKETS)
        for number in range(BUCKETS):
            chosen = batch.filter(pa.array(buckets == number))
            # Fluss distributes rows of an Iceberg table by Iceberg's hash of the key: 8 bytes of a bigint.
            keys = np.ascontiguousarray(chosen.column("id").to_numpy()).astype("<i8").tobytes()
            values = (
                [None] * chosen.num_rows
                if delete
                else encode_values(chosen, info.descriptor.columns, info.schema_id).to_pylist()
            )
            encoded = encode_kv_batch([keys[at : at + 8] for at in range(0, len(keys), 8)], values, info.schema_id)
            self._client.call(put_kv(info.path, TableBucket(info.table_id, number), encoded))

    def _write(self, write: Callable[[PartT], object], parts: Iterable[PartT]) -> None:
        with ThreadPoolExecutor(_WRITERS) as threads:
            for _ in threads.map(write, parts):
                pass

    def _all_led(self, path: TablePath) -> bool:
        leaders = self._client.call(metadata([path])).leaders
        return len(leaders) == BUCKETS and None not in leaders.values()

    def _wait_for(self, ready: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _TIMEOUT_S
        while not ready():
            if time.monotonic() > deadline:
                raise SystemExit(f"error: {what} did not appear within {_TIMEOUT_S:.0f} s")
            time.sleep(0.02)


def batches_of(ids: np.ndarray, seed: int) -> Iterator[pa.RecordBatch]:
    """Return rows with these ids; another seed gives other values."""
    for start in range(0, len(ids), rows.BATCH_ROWS):
        yield rows.batch_of(ids[start : start + rows.BATCH_ROWS], seed)


def _split(batches: Iterable[pa.RecordBatch], at_least: int) -> Iterator[pa.RecordBatch]:
    """Yield smaller batches, so that even a few rows reach every bucket."""
    for batch in batches:
        size = max(1, min(rows.BATCH_ROWS // at_least, -(-batch.num_rows // at_least)))
        for start in range(0, batch.num_rows, size):
            yield batch.slice(start, size)
