"""The client's scan of a primary-key table. It scans several buckets at once, each as of one moment.

    with client.scan(table) as scan:
        for batch in scan:  # each is a pyarrow.RecordBatch
            ...
        scan.log_offsets  # for each bucket, the offset from which its log continues the scan

For each bucket one call is in flight while the caller works on the batch before it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, cast

import grpc

from fluss_tiering.api.v1 import kv_scan_pb2 as pb
from fluss_tiering.client.failed_call import FailedCall
from fluss_tiering.model.closing import Closing
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket, TableInfo
from fluss_tiering.wire.kv_scan import (
    CloseScan,
    ContinueScan,
    OpenScan,
    ScanCall,
    ScannedRows,
    call_to_pb,
    rows_from_pb,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from fluss_tiering.formats.stored_schemas import StoredSchemas

    # These are generic in their type stubs only.
    ScanKv = grpc.UnaryUnaryMultiCallable[pb.ScanKvRequest, pb.ScanKvResponse]
    Answer = grpc.Future[pb.ScanKvResponse]

_BUCKETS_IN_PARALLEL: Final = 4
_MAX_REPEATS: Final = 3
_FIRST_PAUSE_S: Final = 0.2
_MAX_PAUSE_S: Final = 2.0
_CLOSE_SECONDS: Final = 5.0


class TableScan(Closing):
    """The rows of a primary-key table, as an iterator of Arrow record batches and a context manager.

    Use it in one thread. The order of batches of different buckets is not fixed. If a scan ends early, it closes its
    scanners on the server. This also holds after an error, and if the program holds the scan no longer.

    Attributes:
        table: The table.
        schema: The Arrow schema of the batches. It has the table's columns, or the columns that were asked for.
    """

    def __init__(
        self,
        scan_kv: ScanKv,
        error_of: Callable[[FailedCall], FlussTieringError],
        table: TableInfo,
        buckets: Sequence[TableBucket],
        *,
        limit: int | None,
        batch_size_bytes: int,
        columns: Sequence[str] | None,
        timeout: float,
    ) -> None:
        """Start a scan; see `TieringClient.scan`. `error_of` gives the error that a failed call stands for."""
        from fluss_tiering.formats.stored_schemas import StoredSchemas  # noqa: PLC0415 - the base install has no pyarrow

        self.table = table
        schemas = StoredSchemas(table, columns)
        self.schema: pa.Schema = schemas.wanted.schema
        answers: SimpleQueue[_BucketScan] = SimpleQueue()
        self._buckets = [
            _BucketScan(scan_kv, error_of, BucketScanCalls(each, limit, batch_size_bytes), answers, timeout)
            for each in buckets
        ]
        # The generator does not refer to this object, so that it is closed as soon as nothing refers to this object.
        self._batches = _batches(table, schemas, self._buckets, answers, limit)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        return next(self._batches)

    def close(self) -> None:
        """End the scan and close its scanners. A second call does nothing."""
        self._batches.close()

    @property
    def log_offsets(self) -> Mapping[TableBucket, int]:
        """The offset of each bucket from which on its log is not part of the scan.

        Raises:
            RuntimeError: If the scan has not come to the end of each bucket yet.
        """
        unfinished = [scan.calls.bucket for scan in self._buckets if scan.calls.next_call is not None]
        if unfinished:
            raise RuntimeError(f"the scan of {self.table.path} has not come to the end of {unfinished[0]} yet")
        return {scan.calls.bucket: cast("int", scan.calls.log_offset) for scan in self._buckets}


class BucketScanCalls:
    """The state of the scan of one bucket. It does no I/O, so that any client can use it.

    Attributes:
        bucket: The bucket.
        next_call: The call to send next, or to send again if its answer was lost; None when the scan has ended.
        log_offset: The offset from which on the log is not part of the scan; None before the first answer.
    """

    def __init__(self, bucket: TableBucket, limit: int | None, batch_size_bytes: int) -> None:
        self.bucket = bucket
        self.next_call: ScanCall | None = OpenScan(bucket, limit, batch_size_bytes)
        self.log_offset: int | None = None
        self._scanner_id: bytes | None = None
        self._call_seq_id = 0
        self._batch_size_bytes = batch_size_bytes

    @property
    def is_open(self) -> bool:
        """Whether the server has answered at least once."""
        return self.log_offset is not None

    def answered(self, rows: ScannedRows) -> None:
        """Take the answer to `next_call`, and set the call after it."""
        if rows.log_offset is not None:
            self.log_offset = rows.log_offset
        self._scanner_id = rows.scanner_id
        self._call_seq_id += 1
        self.next_call = None
        if rows.has_more and rows.scanner_id is not None:
            self.next_call = ContinueScan(rows.scanner_id, self._call_seq_id, self._batch_size_bytes)

    def close_call(self) -> CloseScan | None:
        """Return the call that closes the scanner early, or None if no scanner is known to be open."""
        if self.next_call is None or self._scanner_id is None:
            return None
        return CloseScan(self._scanner_id)


class _BucketScan:
    """The scan of one bucket. It has one call in flight at most, and puts itself into `answers` after the call."""

    def __init__(
        self,
        scan_kv: ScanKv,
        error_of: Callable[[FailedCall], FlussTieringError],
        calls: BucketScanCalls,
        answers: SimpleQueue[_BucketScan],
        timeout: float,
    ) -> None:
        self.calls = calls
        self._scan_kv = scan_kv
        self._error_of = error_of
        self._answers = answers
        self._timeout = timeout
        self._repeats = 0
        self._give_up_at: float | None = None
        self._call: Answer | None = None

    def ask(self) -> None:
        """Send the next call, if there is one."""
        if self.calls.next_call is not None:
            self._call = self._scan_kv.future(call_to_pb(self.calls.next_call), timeout=self._timeout)
            self._call.add_done_callback(lambda _: self._answers.put(self))

    def answer(self) -> ScannedRows | None:
        """Return the answer, or None if the call failed and was sent again.

        Raises:
            FlussTieringError: The error of the call if it cannot be repeated.
        """
        try:
            rows = rows_from_pb(cast("Answer", self._call).result())
        except grpc.RpcError as failure:
            error = self._error_of(cast("FailedCall", failure))
            if not self._may_repeat(error.code):
                raise error from failure
            time.sleep(min(_MAX_PAUSE_S, _FIRST_PAUSE_S * 2**self._repeats))
            self._repeats += 1
            self.ask()
            return None
        self._repeats, self._give_up_at = 0, None
        self.calls.answered(rows)
        return rows

    def close(self) -> Answer | None:
        """End the scan early, and return the call that tells the server so, if the server must be told."""
        if self._call is not None and self._call.done():
            with suppress(grpc.RpcError, grpc.FutureCancelledError):
                # The answer may name the scanner.
                self.calls.answered(rows_from_pb(self._call.result()))
        elif self._call is not None:
            self._call.cancel()
        close_call = self.calls.close_call()
        if close_call is None:
            return None
        return self._scan_kv.future(call_to_pb(close_call), timeout=min(self._timeout, _CLOSE_SECONDS))

    def _may_repeat(self, code: ErrorCode) -> bool:
        now = time.monotonic()
        self._give_up_at = self._give_up_at or now + self._timeout
        if not self.calls.is_open:
            # If the server could not be reached, the channel has tried again already.
            return code is ErrorCode.TOO_MANY_SCANNERS and now < self._give_up_at
        if code is ErrorCode.INVALID_SCAN_REQUEST:
            # If the connection broke, the server may still work on the first call and refuse the second one.
            return now < self._give_up_at
        return code is ErrorCode.UNAVAILABLE and self._repeats < _MAX_REPEATS


def check_range(name: str, value: int | None, largest: int) -> None:
    """Check an argument of a scan. In a request, a number below 1 would mean that there is none.

    Raises:
        FlussTieringError: INVALID_REQUEST if it is below 1 or above the largest number.
    """
    if value is not None and not 1 <= value <= largest:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST, f"a scan with {name} {value}: expected a number from 1 to {largest}"
        )


def _batches(
    table: TableInfo,
    schemas: StoredSchemas,
    scans: Sequence[_BucketScan],
    answers: SimpleQueue[_BucketScan],
    limit: int | None,
) -> Generator[pa.RecordBatch, None, None]:
    waiting = deque(scans)
    active: set[_BucketScan] = set()
    rows_left = limit
    try:
        while waiting or active:
            while waiting and len(active) < _BUCKETS_IN_PARALLEL:
                active.add(waiting[0])
                waiting.popleft().ask()
            scan = answers.get()
            rows = scan.answer()
            if rows is None:
                continue
            if scan.calls.next_call is None:
                active.remove(scan)
            else:
                scan.ask()
            for batch in _decoded(schemas, rows):
                if rows_left is not None and batch.num_rows >= rows_left:
                    yield batch.slice(0, rows_left)
                    return
                yield batch
                rows_left = None if rows_left is None else rows_left - batch.num_rows
    except FlussTieringError as error:
        raise FlussTieringError(
            error.code, f"the scan of {table.path} failed before its end: {error.message}"
        ) from error
    finally:
        _close(active)


def _close(scans: Iterable[_BucketScan]) -> None:
    # The client may be closed already (ValueError), or the server unavailable. The scanners then expire.
    with suppress(ValueError, grpc.RpcError, grpc.FutureCancelledError):
        for close_call in [scan.close() for scan in scans]:
            if close_call is not None:
                close_call.result()


def _decoded(schemas: StoredSchemas, rows: ScannedRows) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa  # noqa: PLC0415 - the base install has none

    from fluss_tiering.formats.compacted.row import decode_stored  # noqa: PLC0415

    if rows.arrow_ipc:
        with pa.ipc.open_stream(rows.arrow_ipc) as stored:
            for batch in stored:
                yield decode_stored(batch.column(0), schemas)
