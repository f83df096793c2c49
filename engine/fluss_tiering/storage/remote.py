"""Reading splits through the tiering server, for readers that cannot open the storage's files themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import pyarrow as pa

from fluss_tiering.formats.compacted.row import decode_stored
from fluss_tiering.formats.log.batch import LogBatch, read_header
from fluss_tiering.formats.log.decoding import decode_stored_batch
from fluss_tiering.formats.stored_schemas import StoredSchemas
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import KvSnapshot, TableBucket, TableInfo
from fluss_tiering.storage.reading import RetryBackoff, rewording_corrupt_data


class SplitStreams(Protocol):
    """The methods of a `TieringClient` that the reader uses."""

    def fetch_log(self, bucket: TableBucket, start_offset: int, end_offset: int) -> Iterator[bytes]:
        """Yield the whole log batches that hold [start_offset, end_offset), cut into chunks anywhere."""
        ...

    def fetch_kv_snapshot(
        self, bucket: TableBucket, snapshot_id: int, from_key: bytes | None, to_key: bytes | None
    ) -> Iterator[bytes]:
        """Yield the entries of the key range [from_key, to_key) as Arrow IPC streams (columns key, value: binary)."""
        ...


class RemoteSplitReader:
    """A `SplitReader` over the server's streams. A stream that breaks is opened again after what has arrived."""

    def __init__(self, streams: SplitStreams) -> None:
        self._streams = streams

    def read_log(
        self,
        table: TableInfo,
        bucket: TableBucket,
        start_offset: int,
        end_offset: int,
        columns: Sequence[str] | None = None,
    ) -> Iterator[LogBatch]:
        """Yield the rows of a range of the log; see `SplitReader.read_log`."""
        schemas = StoredSchemas(table, columns)
        if start_offset == end_offset:
            return
        expected = start_offset
        backoff = RetryBackoff()
        while expected < end_offset:
            try:
                for raw in _whole_batches(bucket, self._streams.fetch_log(bucket, expected, end_offset)):
                    with _naming_bucket(bucket):
                        rows = decode_stored_batch(memoryview(raw), 0, schemas).slice(expected, end_offset)
                    if rows.base_offset != expected:
                        raise _damaged(bucket, f"begin at offset {rows.base_offset}, expected {expected}")
                    expected += rows.records.num_rows
                    backoff.restore()
                    yield rows
            except FlussTieringError as error:
                backoff.wait_after(error)
            else:
                if expected != end_offset:
                    raise _damaged(bucket, f"ended before offset {expected}, expected {end_offset}")

    def read_kv_snapshot(
        self, table: TableInfo, snapshot: KvSnapshot, from_key: bytes | None, to_key: bytes | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a key range; see `SplitReader.read_kv_snapshot`."""
        bucket, schemas = snapshot.bucket, StoredSchemas(table)
        backoff = RetryBackoff()
        while True:
            try:
                for message in self._streams.fetch_kv_snapshot(bucket, snapshot.snapshot_id, from_key, to_key):
                    with pa.ipc.open_stream(message) as entries:
                        for batch in entries:
                            with _naming_bucket(bucket):
                                rows = decode_stored(batch.column("value"), schemas)
                            if batch.num_rows:
                                # This is the least key after the last one.
                                from_key = batch.column("key")[-1].as_py() + b"\0"
                            backoff.restore()
                            yield rows
            except FlussTieringError as error:
                backoff.wait_after(error)
            else:
                return

    def measure_kv_snapshot(self, table: TableInfo, snapshot: KvSnapshot) -> KvSnapshot:
        """Return the snapshot as it is, since the server has measured it."""
        return snapshot


def _whole_batches(bucket: TableBucket, chunks: Iterable[bytes]) -> Iterator[bytes]:
    pending = bytearray()
    for chunk in chunks:
        pending += chunk
        while (size := _first_batch_size(bucket, pending)) is not None:
            yield bytes(pending[:size])
            del pending[:size]
    if pending:
        raise _damaged(bucket, "ended within a log batch")


def _first_batch_size(bucket: TableBucket, pending: bytearray) -> int | None:
    with memoryview(pending) as view, _naming_bucket(bucket):
        header = read_header(view, 0)
        return None if header is None else header.size


def _naming_bucket(bucket: TableBucket) -> AbstractContextManager[None]:
    return rewording_corrupt_data(lambda message: _damage(bucket, f"cannot be read: {message}"))


def _damaged(bucket: TableBucket, what: str) -> FlussTieringError:
    return FlussTieringError(ErrorCode.CORRUPT_DATA, _damage(bucket, what))


def _damage(bucket: TableBucket, what: str) -> str:
    return (
        f"the data of {bucket} from the tiering server {what}; retry the task, and look into the server's log if that "
        "does not help"
    )
