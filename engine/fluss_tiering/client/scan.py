"""A scan of a primary-key table through the client: several buckets at once, each as of one moment.

    with client.scan(table) as scan:
        for batch in scan:          # pyarrow.RecordBatch in the table's Arrow schema, or of the columns asked for
            ...
        scan.log_offsets            # TableBucket -> offset from which the log goes on, without a gap or a double

For each bucket one call is on its way while the batch before it is worked on.
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
from fluss_tiering.client.calls.kv_scan import BucketScanCalls
from fluss_tiering.client.channel import FailedCall
from fluss_tiering.model.closing import Closing
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket, TableInfo
from fluss_tiering.wire.kv_scan import ScannedRows, call_to_pb, rows_from_pb

if TYPE_CHECKING:
    import pyarrow as pa

    from fluss_tiering.formats.projection import Projection

    # These are generic in their type stubs only.
    ScanKv = grpc.UnaryUnaryMultiCallable[pb.ScanKvRequest, pb.ScanKvResponse]
    Answer = grpc.Future[pb.ScanKvResponse]

_BUCKETS_AT_ONCE: Final = 4
_MOST_REPEATS: Final = 3
_FIRST_PAUSE_S: Final = 0.2
_MAX_PAUSE_S: Final = 2.0
_CLOSE_SECONDS: Final = 5.0


class TableScan(Closing):
    """The rows of a primary-key table: an iterator of Arrow record batches, and a context manager; for one thread.

    Batches of different buckets come in any order. A scan that ends early, by an error, by `close` or because nobody
    holds it any more, closes its scanners on the server.

    Attributes:
        table: that is scanned.
        schema: of the batches.
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
        """See `TieringClient.scan`; `error_of` tells what a failed call means."""
        from fluss_tiering.formats.projection import Projection  # noqa: PLC0415 - the base install has no pyarrow

        self.table = table
        wanted = Projection.of(table, columns)
        self.schema: pa.Schema = wanted.schema
        answers: SimpleQueue[_BucketScan] = SimpleQueue()
        self._buckets = [
            _BucketScan(scan_kv, error_of, BucketScanCalls(each, limit, batch_size_bytes), answers, timeout)
            for each in buckets
        ]
        # Nothing in it refers to this object, so that it is closed as soon as nobody holds that.
        self._batches = _batches(table, wanted, self._buckets, answers, limit)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        return next(self._batches)

    def close(self) -> None:
        """Ends the scan and closes its scanners; again does nothing."""
        self._batches.close()

    @property
    def log_offsets(self) -> Mapping[TableBucket, int]:
        """For each bucket, the offset from which on its log is not in the scan (K5).

        Raises:
            RuntimeError: before the last batch of each bucket was taken.
        """
        unfinished = [scan.calls.bucket for scan in self._buckets if scan.calls.next_call is not None]
        if unfinished:
            raise RuntimeError(f"the scan of {self.table.path} has not come to the end of {unfinished[0]}")
        return {scan.calls.bucket: cast("int", scan.calls.log_offset) for scan in self._buckets}


class _BucketScan:
    """One bucket's scan: at most one call is on its way, and stands in `answers` once it is answered."""

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
        """Sends the next call."""
        if self.calls.next_call is not None:
            self._call = self._scan_kv.future(call_to_pb(self.calls.next_call), timeout=self._timeout)
            self._call.add_done_callback(lambda _: self._answers.put(self))

    def answer(self) -> ScannedRows | None:
        """The answer; None where the call was sent again, since the answer may be had yet. Raises what it failed of."""
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
        self._repeats = 0
        self.calls.answered(rows)
        return rows

    def close(self) -> Answer | None:
        """Ends the scan before its end; the call that tells the server so, where it must be told."""
        if self._call is not None and self._call.done():
            with suppress(grpc.RpcError, grpc.FutureCancelledError):
                # It may say the scanner's id.
                self.calls.answered(rows_from_pb(self._call.result()))
        elif self._call is not None:
            self._call.cancel()
        close_call = self.calls.close_call()
        if close_call is None:
            return None
        return self._scan_kv.future(call_to_pb(close_call), timeout=min(self._timeout, _CLOSE_SECONDS))

    def _may_repeat(self, code: ErrorCode) -> bool:
        if not self.calls.is_open:
            # The channel has tried again already where the server could not be reached.
            now = time.monotonic()
            self._give_up_at = self._give_up_at or now + self._timeout
            return code is ErrorCode.TOO_MANY_SCANNERS and now < self._give_up_at
        # Another call is under way where the connection broke and the server still works on the first (K14, K15).
        return code in {ErrorCode.UNAVAILABLE, ErrorCode.INVALID_SCAN_REQUEST} and self._repeats < _MOST_REPEATS


def _batches(
    table: TableInfo,
    wanted: Projection,
    scans: Sequence[_BucketScan],
    answers: SimpleQueue[_BucketScan],
    limit: int | None,
) -> Generator[pa.RecordBatch, None, None]:
    waiting = deque(scans)
    active: set[_BucketScan] = set()
    rows_left = limit
    try:
        while waiting or active:
            while waiting and len(active) < _BUCKETS_AT_ONCE:
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
            for batch in _decoded(table, wanted, rows):
                if rows_left is not None and batch.num_rows >= rows_left:
                    yield batch.slice(0, rows_left)
                    return
                yield batch
                rows_left = None if rows_left is None else rows_left - batch.num_rows
    except FlussTieringError as error:
        raise FlussTieringError(
            error.code, f"the scan of {table.path} has failed before its end: {error.message}"
        ) from error
    finally:
        _close(active)


def _close(scans: Iterable[_BucketScan]) -> None:
    # A client that is closed already (ValueError), or a server that is away: then the scanners expire.
    with suppress(ValueError, grpc.RpcError, grpc.FutureCancelledError):
        for close_call in [scan.close() for scan in scans]:
            if close_call is not None:
                close_call.result()


def _decoded(table: TableInfo, wanted: Projection, rows: ScannedRows) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa  # noqa: PLC0415 - the base install has none

    from fluss_tiering.formats.compacted.row import decode_values  # noqa: PLC0415

    if rows.arrow_ipc:
        with pa.ipc.open_stream(rows.arrow_ipc) as stored:
            for batch in stored:
                values = batch.column(0)
                yield wanted.arrange(decode_values(values, table.descriptor.columns, table.schema_id, wanted.included))
