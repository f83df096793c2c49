"""Writing rows to a cluster: they go to partitions and buckets as with Fluss's own clients, are encoded, and sent."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

import pyarrow as pa
from tenacity import Retrying, retry_if_exception, stop_after_delay

from fluss_tiering.formats.compacted.kv_batches import encode_kv_batch
from fluss_tiering.formats.compacted.row import encode_values
from fluss_tiering.formats.grouping import parts_of, rows_by_partition
from fluss_tiering.formats.log.batch import encode_log_batch
from fluss_tiering.formats.schema import arrow_type
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket, TableInfo, WriteKind
from fluss_tiering.storage.fluss.partitions import KnownPartitions, bucket_count
from fluss_tiering.storage.fluss.rpc.call import Call
from fluss_tiering.storage.fluss.rpc.calls.log import OffsetType, log_offset
from fluss_tiering.storage.fluss.rpc.calls.tables import Partition
from fluss_tiering.storage.fluss.rpc.calls.writes import produce_log, put_kv
from fluss_tiering.storage.fluss.rpc.client import BACK_OFF, FlussClient, ParallelCalls
from fluss_tiering.storage.fluss.rpc.errors import FlussError, FlussServerError, UnknownBucketError
from fluss_tiering.storage.fluss.table_formats import ICEBERG, LAKE_FORMAT, check_stored, encode_primary_keys
from fluss_tiering.storage.writes import compression_of, conform_write, place_by_key, place_evenly

ResultT = TypeVar("ResultT")

_BATCH_BYTES: Final = 2 << 20
"""The size of one batch in Arrow, which is that of Fluss's clients (`client.writer.batch-size`)."""
_KV_BATCH_ROWS: Final = 1 << 15
"""Fluss writes the types of a batch's changes, up to two for each row, into a page of 128 KiB and fails beyond it."""
_MAX_TABLES: Final = 10_000
_EARLY_WRITES_S: Final = 10.0
"""How long a write is repeated that may be too early for what its table has got."""


_OTHER_PARTITIONS: Final = frozenset({FlussError.PARTITION_NOT_EXISTS, FlussError.INVALID_BUCKET_ROUTING})
"""The errors of a write to partitions as they were before."""
_LONGEST_PAUSE_S: Final = 3.0
_GIVE_UP_S: Final = 20.0
"""How long a write is repeated that the leader refuses. Clients of the tiering server wait for 30 s by default."""


@dataclass(frozen=True, slots=True, eq=False)
class _Placed:
    """The rows for a bucket, and the number of buckets by which it was chosen, if the cluster reports it."""

    records: pa.RecordBatch
    among: int | None


class ClusterWriter:
    """Writes to the tables of a cluster. It allows concurrent calls.

    Args:
        calls: The threads for writes to several buckets at once, which may wait for hard-pressed buckets.
        backpressure: The pauses of hard-pressed buckets.
    """

    def __init__(self, client: FlussClient, calls: ParallelCalls, *, backpressure: Backpressure | None = None) -> None:
        self._client = client
        self._calls = calls
        self._backpressure = backpressure or Backpressure()
        self._partitions = KnownPartitions(client)
        self._lock = threading.Lock()
        # The log ends of log tables without a bucket key, whose rows are spread evenly.
        self._log_ends: dict[tuple[int, int | None], list[int]] = {}

    def write(self, table: TableInfo, kind: WriteKind, rows: pa.Table) -> Mapping[TableBucket, int]:
        """Write rows, and return the log end offset of each bucket that got some, once all its replicas have them.

        All rows are checked before the first one is written. A write that fails later may have reached some buckets,
        since a cluster cannot write to several buckets in one step.

        Raises:
            FlussTieringError: INVALID_ROWS if the rows do not fit the table; INVALID_TABLE if rows in its format
                cannot be written here; TABLE_NOT_EXIST if there is no such table; UNAVAILABLE if the cluster cannot be
                reached, or is hard-pressed for too long.
        """
        _check_format(table)
        records = conform_write(table, kind, rows)
        try:
            placed = self._place(table, records) if records.num_rows else {}
            ends = self._calls.each(lambda item: self._send(table, kind, *item), placed.items())
        except FlussServerError as error:
            if error.fluss_error in _OTHER_PARTITIONS:
                self._partitions.forget(table.table_id)
            raise
        for bucket, end in zip(placed, ends, strict=True):
            log_ends = self._log_ends.get((table.table_id, bucket.partition_id))
            # Another write may have placed its rows by an older number of buckets meanwhile.
            if log_ends is not None and bucket.bucket < len(log_ends):
                log_ends[bucket.bucket] = end
        return dict(zip(placed, ends, strict=True))

    def close(self) -> None:
        """Let writes fail that wait for a hard-pressed bucket."""
        self._backpressure.close()

    def forget_partitions(self, table_id: int) -> None:
        """Forget the partitions of a table, since some were dropped. A write to a dropped one creates it again."""
        self._partitions.forget(table_id)

    def _place(self, table: TableInfo, records: pa.RecordBatch) -> dict[TableBucket, _Placed]:
        by_partition = list(rows_by_partition(table, records))
        partitions: Mapping[tuple[str, ...], Partition | None] = {(): None}
        if table.descriptor.partition_keys:
            partitions = self._partitions.of(table, [values for values, _ in by_partition])
        placed: dict[TableBucket, _Placed] = {}
        for values, rows in by_partition:
            partition = partitions[values]
            partition_id = None if partition is None else partition.partition_id
            count = bucket_count(self._client, table, partition)
            is_reported = table.bucket_count_epoch > 0 or (partition is not None and partition.bucket_count is not None)
            for bucket, chosen in self._place_in_buckets(table, partition_id, count, rows).items():
                where = TableBucket(table.table_id, bucket, partition_id)
                placed[where] = _Placed(chosen, count if is_reported else None)
        return placed

    def _place_in_buckets(
        self, table: TableInfo, partition_id: int | None, count: int, rows: pa.RecordBatch
    ) -> Mapping[int, pa.RecordBatch]:
        descriptor = table.descriptor
        if count == 1:
            return {0: rows}
        if descriptor.bucket_keys:
            return place_by_key(rows, descriptor, count)
        where = (table.table_id, partition_id)
        log_ends = self._log_ends.get(where)
        if log_ends is None or len(log_ends) != count:
            buckets = [TableBucket(table.table_id, number, partition_id) for number in range(count)]
            log_ends = self._calls.each(
                lambda bucket: self._client.call(log_offset(table.path, bucket, OffsetType.LATEST)), buckets
            )
            with self._lock:
                if len(self._log_ends) >= _MAX_TABLES:
                    self._log_ends.clear()
                self._log_ends[where] = log_ends
        return place_evenly(rows, log_ends)

    def _send(self, table: TableInfo, kind: WriteKind, bucket: TableBucket, placed: _Placed) -> int:
        """Write rows to one bucket and return the log's end after them."""
        end = 0
        for batch in parts_of(placed.records, _BATCH_BYTES, None if kind is WriteKind.APPEND else _KV_BATCH_ROWS):
            if kind is WriteKind.APPEND:
                encoded = encode_log_batch(
                    0,
                    0,
                    batch,
                    schema_id=table.schema_id,
                    change_types=None,
                    compression=compression_of(table.descriptor),
                )
                written = self._call(produce_log(table.path, bucket, encoded, placed_among=placed.among))
                end = written + batch.num_rows
            else:
                keys = encode_primary_keys(table.descriptor, batch).to_pylist()
                values = [None] * len(keys) if kind is WriteKind.DELETE else _values(table, batch)
                records = encode_kv_batch(keys, values, table.schema_id)
                call = put_kv(table.path, bucket, records, _target_columns(table, kind), placed_among=placed.among)
                answer = self._backpressure.write(bucket, partial(self._call, call))
                self._backpressure.report(bucket, answer.pressure)
                end = answer.log_end_offset
        return end

    def _call(self, call: Call[Any, ResultT]) -> ResultT:
        """Send a write and return its result.

        Servers learn of new columns and new partitions only after a moment, so a write that is too early is repeated.
        """
        tries = Retrying(
            stop=stop_after_delay(_EARLY_WRITES_S),
            wait=BACK_OFF,
            retry=retry_if_exception(_is_early),
            reraise=True,
        )
        result: ResultT = tries(self._client.call, call)
        return result


def _values(table: TableInfo, records: pa.RecordBatch) -> list[bytes]:
    """Return the stored values of rows, with nulls in the columns that the cluster numbers."""
    columns = []
    for number, column in enumerate(table.descriptor.columns):
        if column.name in table.descriptor.auto_increment_columns:
            column = replace(column, data_type=replace(column.data_type, nullable=True))  # noqa: PLW2901
            records = records.add_column(number, column.name, pa.nulls(records.num_rows, arrow_type(column.data_type)))
        columns.append(column)
    values: list[bytes] = encode_values(records, columns, table.schema_id).to_pylist()
    return values


def _target_columns(table: TableInfo, kind: WriteKind) -> Sequence[int]:
    """Return the indexes of the columns that a write sets; none for all columns. A delete removes whole rows.

    As with Fluss's clients, rows of a table with columns that the cluster numbers are partial updates of the others.
    """
    descriptor = table.descriptor
    if kind is WriteKind.DELETE or not descriptor.auto_increment_columns:
        return ()
    written = set(descriptor.written_columns)
    return [number for number, column in enumerate(descriptor.columns) if column in written]


def _is_early(error: BaseException) -> bool:
    if isinstance(error, UnknownBucketError):
        return True
    return isinstance(error, FlussServerError) and error.fluss_error is FlussError.SCHEMA_NOT_EXIST


def _check_format(table: TableInfo) -> None:
    descriptor = table.descriptor
    check_stored(table.path, descriptor.properties)
    lake_format = descriptor.properties.get(LAKE_FORMAT)
    if descriptor.bucket_keys and lake_format != ICEBERG:
        raise FlussTieringError(
            ErrorCode.INVALID_TABLE,
            f"the rows of table {table.path} are bucketed for {lake_format or 'no lake'}: expected {LAKE_FORMAT}="
            f"{ICEBERG}; write them with a client of Fluss",
        )
    if len(descriptor.bucket_keys) > 1:
        raise FlussTieringError(
            ErrorCode.INVALID_TABLE,
            f"the table {table.path} has the bucket key ({', '.join(descriptor.bucket_keys)}): expected one column, "
            "since Fluss does not say where rows of several columns go if the lake is Iceberg; make another table",
        )


class Backpressure:
    """The pauses before the next write to each bucket. It allows concurrent calls.

    Args:
        monotonic: The clock, in seconds.
        closed: An event that ends all pauses, set when the storage is closed.
    """

    def __init__(
        self, *, monotonic: Callable[[], float] = time.monotonic, closed: threading.Event | None = None
    ) -> None:
        self._monotonic = monotonic
        self._closed = closed or threading.Event()
        self._not_before: dict[TableBucket, float] = {}

    def write(self, bucket: TableBucket, send: Callable[[], ResultT]) -> ResultT:
        """Send a write when the bucket may be written to, again while the leader refuses it, and return its result.

        Raises:
            FlussServerError: STORAGE_BACKPRESSURE_EXCEPTION if the leader has refused the write for 20 s; the errors of
                `send`.
            FlussTieringError: UNAVAILABLE if the storage is closed meanwhile.
        """
        give_up_at = self._monotonic() + _GIVE_UP_S
        while True:
            self._wait(bucket)
            try:
                return send()
            except FlussServerError as error:
                if error.fluss_error is not FlussError.STORAGE_BACKPRESSURE_EXCEPTION:
                    raise
                self.report(bucket, 1.0)
                if self._monotonic() >= give_up_at:
                    raise

    def report(self, bucket: TableBucket, pressure: float) -> None:
        """Set how long the next write to a bucket waits, by what its leader said after the last one (0 to 1)."""
        pause = _LONGEST_PAUSE_S * min(pressure, 1.0) ** 2
        if pressure > 0:
            self._not_before[bucket] = self._monotonic() + pause
        else:
            self._not_before.pop(bucket, None)

    def close(self) -> None:
        """End all pauses. Their writes fail."""
        self._closed.set()

    def _wait(self, bucket: TableBucket) -> None:
        pause = self._not_before.get(bucket, 0.0) - self._monotonic()
        if pause > 0 and self._closed.wait(pause):
            raise FlussTieringError(
                ErrorCode.UNAVAILABLE, f"the storage was closed before {bucket} was written to: write the rows again"
            )
