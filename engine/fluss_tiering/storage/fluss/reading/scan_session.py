"""Reading the rows of a bucket in a scan session of its leader, as clusters since Fluss 1.0 allow it."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from contextlib import suppress
from typing import Final

import pyarrow as pa

from fluss_tiering.formats.compacted.kv_batches import stored_values
from fluss_tiering.formats.compacted.row import decode_stored
from fluss_tiering.formats.compacted.value_layout import PLAIN
from fluss_tiering.model.closing import Closing
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket, TableInfo, TablePath
from fluss_tiering.storage.fluss.reading.schema_history import SchemaHistory
from fluss_tiering.storage.fluss.rpc.calls.kv import SessionRows, close_session, continue_session, open_session
from fluss_tiering.storage.fluss.rpc.calls.log import OffsetType, log_offset
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from fluss_tiering.storage.fluss.table_formats import value_layout
from fluss_tiering.storage.reading import OPENING_SCAN, RetryBackoff

BATCH_BYTES: Final = 4 << 20
_CLOSE_S: Final = 5.0
_BEHIND_S: Final = 5.0
"""How long opening waits for a leader whose RocksDB lacks rows that it has acknowledged."""
_FIRST_PAUSE_S: Final = 0.005
_MAX_PAUSE_S: Final = 0.2
_ENDED: Final = frozenset(
    {
        ErrorCode.SCANNER_EXPIRED,
        ErrorCode.UNKNOWN_SCANNER_ID,
        ErrorCode.INVALID_SCAN_REQUEST,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)
"""The errors of a continuation after which the server has no session any more."""


class ScanSession(Closing):
    """The rows of one bucket as of one moment, which come in batches. One thread at a time may use it.

    A session cannot be resumed. If an answer is lost, or if the server has ended the session, no further batch comes:
    a new session shows the bucket as of a later moment.

    Attributes:
        log_offset: The first offset of the log that is not in the session.
    """

    def __init__(self, client: FlussClient, path: TablePath, bucket: TableBucket, opened: SessionRows) -> None:
        """Go on with a session that was opened; see `ScanSession.open`."""
        if opened.log_offset is None:
            raise FlussTieringError(
                ErrorCode.CORRUPT_DATA,
                f"Fluss's answer that opened a scan of {bucket} has no log offset: expected one in the first answer",
            )
        self.log_offset: int = opened.log_offset
        self._client = client
        self._path = path
        self._bucket = bucket
        self._scanner_id = opened.scanner_id
        self._call_seq_id = 0
        self._first: bytes | None = opened.records or None
        self._open = opened.has_more

    @classmethod
    def open(cls, client: FlussClient, path: TablePath, bucket: TableBucket) -> ScanSession | None:
        """Open a session that has all rows that were acknowledged before this call.

        Returns:
            The session; None if the bucket's leader has no such sessions, or if its RocksDB stays behind its log.

        Raises:
            FlussTieringError: TOO_MANY_SCANNERS if the bucket or the server has no room for another session;
                TABLE_WITHOUT_PRIMARY_KEY if the table has no primary key; TABLE_NOT_EXIST if there is no such table;
                INVALID_REQUEST if it has no such bucket; NOT_LEADER_OR_FOLLOWER if the bucket has no leader;
                UNAVAILABLE if the cluster cannot be reached.
        """
        # A leader acknowledges rows when they are in the log. They may come to RocksDB, which it scans, a moment later.
        acknowledged = client.call(log_offset(path, bucket, OffsetType.LATEST))
        give_up_at = time.monotonic() + _BEHIND_S
        pause = _FIRST_PAUSE_S
        while True:
            try:
                session = cls(client, path, bucket, client.call(open_session(path, bucket, BATCH_BYTES)))
            except FlussTieringError as error:
                if error.code is ErrorCode.UNSUPPORTED_VERSION:
                    return None
                raise
            if session.log_offset >= acknowledged:
                return session
            session.close()
            if time.monotonic() >= give_up_at:
                return None
            time.sleep(pause)
            pause = min(2 * pause, _MAX_PAUSE_S)

    @property
    def has_more(self) -> bool:
        """Whether `take` gives further rows."""
        return self._first is not None or self._open

    def take(self, max_bytes: int = BATCH_BYTES) -> pa.BinaryArray:
        """Return the next rows as stored values, at least one. The session must have more.

        Args:
            max_bytes: The size at which the batch ends, in bytes. The last row may exceed it. The first batch has a
                size of its own.

        Raises:
            FlussTieringError: SCANNER_EXPIRED if the session has ended or an answer of it was lost; STORAGE if the
                leader cannot read its rows; CORRUPT_DATA if the rows are damaged.
        """
        if self._first is None:
            return stored_values(self._continue(max_bytes).records)
        first, self._first = self._first, None
        return stored_values(first)

    def close(self) -> None:
        """End the session, so that its leader has room for another one. A second call does nothing."""
        self._first = None
        if self._open and self._scanner_id is not None:
            self._open = False
            # Whatever goes wrong, the session expires by itself.
            with suppress(FlussTieringError):
                self._client.call(close_session(self._path, self._bucket, self._scanner_id), within=_CLOSE_S)

    def _continue(self, max_bytes: int) -> SessionRows:
        if not self._open or self._scanner_id is None:
            raise self._lost("it has ended already")
        self._call_seq_id += 1
        call = continue_session(self._path, self._bucket, self._scanner_id, self._call_seq_id, max_bytes)
        try:
            rows = self._client.call(call)
        except FlussTieringError as error:
            if error.code in _ENDED:
                self._open = False
            # Otherwise the server may still have the session, but it would refuse this call if it came again.
            self.close()
            if error.code in _ENDED | {ErrorCode.UNAVAILABLE}:
                raise self._lost(error.message) from error
            raise
        self._open = rows.has_more
        return rows

    def _lost(self, why: str) -> FlussTieringError:
        return FlussTieringError(
            ErrorCode.SCANNER_EXPIRED,
            f"the scan session of {self._bucket} ({self._path}) was lost: {why}; start the scan again",
        )


class BucketScans:
    """Opens scans of a cluster's buckets.

    Args:
        client: The client of the cluster, which others may share.
    """

    def __init__(self, client: FlussClient) -> None:
        self._client = client

    def open(
        self, table: TableInfo, bucket: TableBucket, columns: Sequence[str] | None = None
    ) -> Generator[pa.RecordBatch, None, None] | None:
        """Open a scan of the rows that a bucket has now, and wait while its leader is away or has no room for it.

        A scan that fails after its first row cannot go on: another scan would show a later moment.

        Args:
            table: The table, as it was when the reader planned.
            bucket: A bucket of the table, which has a primary key.
            columns: The names of the wanted columns, in their order; None for all.

        Returns:
            The rows, in batches; None if the bucket's leader has no scan sessions, as before Fluss 1.0. A batch holds
            about 4 MiB of stored rows. Closing the generator closes the session.

        Raises:
            FlussTieringError: The errors of `ScanSession.open` if they last; INVALID_REQUEST if a column does not exist
                or is named twice; INVALID_TABLE if the table is stored in a way that is not supported here. Iterating
                raises those of `ScanSession.take`, and INVALID_TABLE if the table's columns have changed in the
                meantime.
        """
        schemas = SchemaHistory(self._client, table, columns)
        value_layout(table)
        backoff = RetryBackoff(passing=OPENING_SCAN)
        while True:
            try:
                session = ScanSession.open(self._client, table.path, bucket)
            except FlussTieringError as error:
                backoff.wait_after(error)
            else:
                return None if session is None else _rows(session, schemas)


def _rows(session: ScanSession, schemas: SchemaHistory) -> Generator[pa.RecordBatch, None, None]:
    with session:
        while session.has_more:
            yield decode_stored(session.take(), schemas, PLAIN)
