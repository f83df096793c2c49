"""Streams to and from the server: rows that are written, and log batches and KV entries that are read.

A whole stream has no deadline, because it may carry any amount of data. Each of its messages has one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from fluss_tiering.api.v1 import tables_pb2 as pb
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath, WriteKind
from fluss_tiering.wire.tables import kind_to_pb, path_to_pb

if TYPE_CHECKING:
    import pyarrow as pa

_REQUEST_BYTES: Final = 4 << 20
_MAX_IN_FLIGHT: Final = 4
_CANCELLATION_S: Final = 5.0
"""How long gRPC may take to end a call that was cancelled. It takes milliseconds."""

MessageT = TypeVar("MessageT")
MessageT_co = TypeVar("MessageT_co", covariant=True)


class _StreamingCall(Protocol[MessageT_co]):
    def __next__(self) -> MessageT_co: ...

    def cancel(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class _End:
    """What ended a stream."""

    error: BaseException


def messages(call: _StreamingCall[MessageT], timeout: float) -> Generator[MessageT, None, None]:
    """Yield the messages of a stream, and cancel the call at the end.

    A thread waits for the messages, since nothing can end a wait in gRPC that gRPC itself does not end.

    Raises:
        grpc.RpcError: What ended the stream. The call is cancelled if a message takes longer than `timeout` seconds.
        FlussTieringError: UNAVAILABLE if gRPC does not even answer the cancellation.
    """
    wanted: SimpleQueue[bool] = SimpleQueue()
    answers: SimpleQueue[MessageT | _End] = SimpleQueue()

    def read() -> None:
        while wanted.get():
            try:
                answers.put(next(call))
            except BaseException as error:  # noqa: BLE001 - it is raised where the message is awaited
                answers.put(_End(error))
                return

    threading.Thread(target=read, name="fluss-tiering-stream", daemon=True).start()
    try:
        while True:
            wanted.put(True)
            answer = _answer_in(answers, timeout, call)
            if not isinstance(answer, _End):
                yield answer
            elif isinstance(answer.error, StopIteration):
                return
            else:
                raise answer.error
    finally:
        wanted.put(False)
        call.cancel()


def _answer_in(answers: SimpleQueue[MessageT], timeout: float, call: _StreamingCall[Any]) -> MessageT:
    with suppress(Empty):
        return answers.get(timeout=timeout)
    call.cancel()
    try:
        return answers.get(timeout=_CANCELLATION_S)
    except Empty:
        raise FlussTieringError(
            ErrorCode.UNAVAILABLE,
            f"the tiering server sent nothing for {timeout:g} s: it may be overloaded or stopped; look at its log and "
            "try again",
        ) from None


def write_rows(
    open_call: Callable[[Iterator[pb.WriteRowsRequest]], _StreamingCall[pb.WriteRowsResponse]],
    path: TablePath,
    kind: WriteKind,
    batches: Iterable[pa.Table | pa.RecordBatch],
    timeout: float,
) -> Iterator[int]:
    """Write the batches in requests, and yield the number of rows of each acknowledged request.

    A request has about 4 MiB, and at most 8 MiB unless a single row is larger. A few requests are in flight at the same
    time. `batches` is read in the caller's thread, so that the caller gets its errors.
    """
    outgoing: SimpleQueue[pb.WriteRowsRequest | None] = SimpleQueue()
    acknowledgements = messages(open_call(iter(outgoing.get, None)), timeout)
    in_flight = 0
    try:
        for arrow_ipc in _ipc_streams(batches):
            outgoing.put(pb.WriteRowsRequest(table_path=path_to_pb(path), kind=kind_to_pb(kind), arrow_ipc=arrow_ipc))
            in_flight += 1
            if in_flight == _MAX_IN_FLIGHT:
                yield _next_row_count(acknowledgements)
                in_flight -= 1
        outgoing.put(None)
        for _ in range(in_flight):
            yield _next_row_count(acknowledgements)
        # The server's end of the stream is waited for, so that it does not count as cancelled. All rows are written.
        with suppress(FlussTieringError):
            next(acknowledgements, None)
    finally:
        outgoing.put(None)
        acknowledgements.close()


def _next_row_count(acknowledgements: Iterator[pb.WriteRowsResponse]) -> int:
    for acknowledgement in acknowledgements:
        return acknowledgement.row_count
    raise FlussTieringError(
        ErrorCode.UNKNOWN, "the tiering server ended a write before it acknowledged all rows: write the rest again"
    )


def _ipc_streams(batches: Iterable[pa.Table | pa.RecordBatch]) -> Iterator[bytes]:
    import pyarrow as pa  # noqa: PLC0415 - the base install has none

    from fluss_tiering.formats.grouping import parts_of  # noqa: PLC0415 - it needs pyarrow

    for batch in batches:
        table = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
        for part in parts_of(table, _REQUEST_BYTES):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, part.schema) as writer:
                writer.write_table(part)
            yield sink.getvalue().to_pybytes()
