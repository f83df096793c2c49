"""Fetching a range of a bucket's log as it is stored: from the bucket's leader and from remote segments."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NoReturn, TypeVar

from fluss_tiering.api.fluss.v1.log_pb2 import FetchLogResponse
from fluss_tiering.formats.log.batch import LogBatchHeader, UnknownMagicError, read_header
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket, TablePath
from fluss_tiering.storage.fluss.reading.remote_files import RemoteFiles, reporting_storage_errors
from fluss_tiering.storage.fluss.rpc.call import Call
from fluss_tiering.storage.fluss.rpc.calls.log import FetchedLog, OffsetType, RemoteSegment, fetch_log, log_offset
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from fluss_tiering.storage.fluss.rpc.errors import FlussError, FlussServerError
from fluss_tiering.storage.reading import UNAVAILABLE_TIMEOUT_S, RetryBackoff, rewording_corrupt_data

FETCH_BYTES: Final = 4 << 20
"""The size of one answer of a leader. With twice this size a core reads 5 % fewer rows."""
READ_BYTES: Final = 8 << 20
"""The size of one read from a file. It is large since an object store takes long to answer each read."""
_PREFIX_BYTES: Final = 12
"""The size of the first part of a batch, up to the end of its length."""

_LOG: Final = logging.getLogger(__name__)

ItemT = TypeVar("ItemT")
_REMEDY: Final = "restore it from a replica, or re-create the table"


@dataclass(frozen=True, slots=True)
class LogRange:
    """The offsets [start_offset, end_offset) of a bucket.

    Attributes:
        path: The path of the bucket's table.
        start_offset: The first offset.
        end_offset: The offset after the last one.
        projection: The indexes of the columns that the leader shall send, ascending; None for all.
        schema_id: The id of a schema that has all of these columns.
    """

    path: TablePath
    bucket: TableBucket
    start_offset: int
    end_offset: int
    projection: tuple[int, ...] | None = None
    schema_id: int = -1


def log_chunks(
    client: FlussClient, files: RemoteFiles, wanted: LogRange, *, unavailable_timeout_s: float = UNAVAILABLE_TIMEOUT_S
) -> Iterator[LogChunk]:
    """Yield the batches that hold a range, perhaps with some batches before and after it.

    A thread fetches the next batches while the caller works on the ones before.

    Raises:
        FlussTieringError: LOG_OFFSET_OUT_OF_RANGE if the log does not hold this range; CORRUPT_DATA if a batch is
            damaged or a file is missing; UNSUPPORTED_VERSION if a batch has an unknown magic; UNAVAILABLE if the bucket
            has no leader for too long; TABLE_NOT_EXIST if there is no such table; STORAGE if the remote folder cannot
            be read.
    """
    stopped = threading.Event()
    fetching = _Fetching(client, files, wanted, RetryBackoff(stopped, unavailable_timeout_s))
    try:
        yield from _ahead(fetching.chunks())
    finally:
        stopped.set()


def _ahead(items: Iterator[ItemT]) -> Iterator[ItemT]:
    """Yield the same items. Each is made while the caller works on the one before it."""
    thread = ThreadPoolExecutor(1, thread_name_prefix="fluss-fetch")
    try:
        coming = thread.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = thread.submit(next, items, None)
            yield item
    finally:
        thread.shutdown(wait=False, cancel_futures=True)


class _Fetching:
    """The state of reading one range."""

    def __init__(self, client: FlussClient, files: RemoteFiles, wanted: LogRange, backoff: RetryBackoff) -> None:
        self._client = client
        self._files = files
        self._path = wanted.path
        self._bucket = wanted.bucket
        self._start = wanted.start_offset
        self._end = wanted.end_offset
        self._projection = wanted.projection
        self._schema_id = wanted.schema_id
        # A leader that would cut nothing only passes on what the remote folder has, too.
        self._remote_first = wanted.projection is None
        # Whether the log is at batches that are older than one of the wanted columns.
        self._before_columns = False
        self._backoff = backoff
        self._missing: str | None = None

    def chunks(self) -> Iterator[LogChunk]:
        """Yield the chunks of the range, and ask again, with pauses, while the leader is away."""
        offset = self._start
        while offset < self._end:
            try:
                fetched, projection = self._fetch(offset)
                self._check_there(fetched, offset)
            except FlussTieringError as error:
                self._backoff.wait_after(self._passing_error(error, offset))
                continue
            self._backoff.restore()
            if fetched.remote_segments:
                missing, asked_at = self._missing, offset
                try:
                    for chunk, next_offset in self._remote(fetched, offset):
                        yield chunk
                        offset = max(offset, next_offset)
                    if offset == asked_at and self._missing == missing:
                        damaged(
                            f"the log of {self._bucket} ({self._path}) has no offset {offset} in the remote segments "
                            "that its leader named for it"
                        )
                except FlussTieringError as error:
                    if not self._remote_first:
                        raise
                    # The leader may still have the segment itself.
                    _LOG.warning("%s; asking the leader of %s for its own copy", error.message, self._bucket)
                    self._remote_first = False
            elif fetched.records:
                chunk, offset = self._whole(memoryview(fetched.records), offset, projection)
                yield chunk

    def _fetch(self, offset: int) -> tuple[FetchedLog, tuple[int, ...] | None]:
        """Ask the leader for the log from an offset on; return its answer and the projection that it was asked for."""
        if self._projection is not None and not self._before_columns:
            try:
                fetched = self._client.call(self._asking(offset, self._projection))
            except FlussServerError as error:
                if error.fluss_error is not FlussError.INVALID_COLUMN_PROJECTION:
                    raise
                # A batch that is older than a column cannot be cut to that column.
                self._before_columns = True
            else:
                # If cutting makes a batch larger than the limit, the leader sends nothing.
                if fetched.records or fetched.remote_segments or fetched.high_watermark <= offset:
                    return fetched, self._projection
        return self._client.call(self._asking(offset, None)), None

    def _asking(self, offset: int, projection: tuple[int, ...] | None) -> Call[FetchLogResponse, FetchedLog]:
        return fetch_log(
            self._path,
            self._bucket,
            offset,
            max_bytes=FETCH_BYTES,
            projection=projection,
            remote_first=self._remote_first,
        )

    def _passing_error(self, error: FlussTieringError, offset: int) -> FlussTieringError:
        """Return UNAVAILABLE in place of LOG_OFFSET_OUT_OF_RANGE if the log has the offset after all.

        While a leader deletes segments that are in the remote folder, it refuses their offsets: it has the segments no
        longer, and does not yet say where they are (Fluss's `LocalLog.removeAndDeleteSegments`).
        """
        if error.code is not ErrorCode.LOG_OFFSET_OUT_OF_RANGE or not isinstance(error, FlussServerError):
            return error
        try:
            start = self._client.call(log_offset(self._path, self._bucket, OffsetType.EARLIEST))
            end = self._client.call(log_offset(self._path, self._bucket, OffsetType.LATEST))
        except FlussTieringError as other:
            return other
        return FlussTieringError(ErrorCode.UNAVAILABLE, error.message) if start <= offset < end else error

    def _check_there(self, fetched: FetchedLog, offset: int) -> None:
        if fetched.records or fetched.remote_segments:
            return
        if fetched.high_watermark > offset:
            # The leader sends nothing for rows that are in the lake only.
            raise FlussTieringError(
                ErrorCode.LOG_OFFSET_OUT_OF_RANGE,
                f"{self._bucket} of {self._path} no longer has its log from offset {offset} on, which ends at "
                f"{fetched.high_watermark}: expected it to be kept until it is tiered; re-create the table to tier it "
                "again, or raise table.log.ttl",
            )
        # A new leader learns only after a moment up to which offset the log is safe.
        raise FlussTieringError(
            ErrorCode.UNAVAILABLE,
            f"{self._bucket} of {self._path} reaches only offset {fetched.high_watermark}: expected {self._end}; "
            "replicas may have been lost",
        )

    def _whole(self, records: memoryview, offset: int, projection: tuple[int, ...] | None) -> tuple[LogChunk, int]:
        """Return the whole batches of an answer, and the offset after them."""
        source = f"the log of {self._bucket} ({self._path}) as its leader sent it from offset {offset} on"
        end, last = last_whole(records, source, 0)
        if last is None or last.next_offset <= offset:
            damaged(f"{source} holds no batch with that offset in {len(records)} bytes")
        self._before_columns = self._before_columns and last.schema_id != self._schema_id
        return LogChunk(records[:end], 0, source, projection), last.next_offset

    def _remote(self, fetched: FetchedLog, offset: int) -> Iterator[tuple[LogChunk, int]]:
        """Yield chunks of the segments in the remote folder, each with the offset after it.

        This ends at a file that exists no more: the leader is then asked where the offset is now.
        """
        position = fetched.first_position
        for segment in fetched.remote_segments:
            if offset >= self._end:
                return
            try:
                for chunk, next_offset in self._segment(segment, position):
                    yield chunk, next_offset
                    offset = next_offset
                    if offset >= self._end:
                        return
            except FileNotFoundError:
                if self._missing == segment.path:
                    raise FlussTieringError(
                        ErrorCode.CORRUPT_DATA,
                        f"{segment.path} with the log of {self._bucket} ({self._path}) from offset "
                        f"{segment.start_offset} to {segment.end_offset} is missing: expected the remote log segment "
                        "that the cluster names; restore the file, or re-create the table",
                    ) from None
                self._missing = segment.path
                return
            position = 0

    def _segment(self, segment: RemoteSegment, position: int) -> Iterator[tuple[LogChunk, int]]:
        source = f"{segment.path} with the log of {self._bucket} ({self._path})"
        wanted = READ_BYTES
        with self._files.open(segment.path) as file:
            while True:
                with reporting_storage_errors(segment.path):
                    file.seek(position)
                    data = memoryview(file.read_buffer(wanted))
                end, last = last_whole(data, source, position)
                if last is not None:
                    chunk = LogChunk(data[:end], position, source)
                    yield chunk, last.next_offset
                    position += end
                    wanted = READ_BYTES
                    if last.next_offset >= segment.end_offset:
                        return
                elif len(data) < wanted:
                    damaged(f"{source} ends at byte {position + len(data)}, before offset {segment.end_offset}")
                else:
                    wanted = max(2 * wanted, _size_of_first(data))


def _size_of_first(data: memoryview) -> int:
    return _PREFIX_BYTES + int.from_bytes(data[8:_PREFIX_BYTES], "little")


@dataclass(frozen=True, slots=True, eq=False)
class LogChunk:
    """Whole log batches, in the order of the log.

    Attributes:
        data: The bytes of the batches.
        start: The position of `data` in its file; 0 for a leader's answer.
        source: The name of the file or answer, for errors.
        projection: The indexes of the columns to which the leader has cut the batches, which still have the checksums
            of the whole batches; None for all.
    """

    data: memoryview
    start: int
    source: str
    projection: tuple[int, ...] | None = None

    def batches(self) -> Iterator[tuple[int, LogBatchHeader]]:
        """Yield the position in `data` and the header of each batch."""
        position = 0
        with naming_source(self.source, self.start):
            while (header := read_header(self.data, position)) is not None:
                yield position, header
                position += header.size


@contextmanager
def naming_source(source: str, start: int = 0) -> Iterator[None]:
    """Add the source and the remedy to an error of the decoder, which knows only the position.

    Raises:
        FlussTieringError: CORRUPT_DATA in place of the decoder's; UNSUPPORTED_VERSION if a newer Fluss may have written
            a batch.
    """
    after = f" after byte {start}" if start else ""
    with rewording_corrupt_data(lambda message: f"{source}{after}: {message}; {_REMEDY}"):
        try:
            yield
        except UnknownMagicError as error:
            raise FlussTieringError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{source}{after}: {error.message}; if the cluster's Fluss is newer than this version of "
                f"fluss-tiering knows, install a newer fluss-tiering; otherwise the batch is damaged: {_REMEDY}",
            ) from error


def last_whole(data: memoryview, source: str, start: int) -> tuple[int, LogBatchHeader | None]:
    """Return the end of the last whole batch, and its header; None if there is no whole batch."""
    end, last = 0, None
    for position, header in LogChunk(data, start, source).batches():
        end, last = position + header.size, header
    return end, last


def damaged(what: str) -> NoReturn:
    """Raise CORRUPT_DATA with the remedy."""
    raise FlussTieringError(ErrorCode.CORRUPT_DATA, f"{what}; {_REMEDY}")
