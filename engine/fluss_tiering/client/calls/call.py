"""Unary calls as values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar, cast

import grpc
from google.protobuf.message import Message

from fluss_tiering.api.v1.kv_scan_pb2_grpc import KvScanStub
from fluss_tiering.api.v1.kv_snapshot_leases_pb2_grpc import KvSnapshotLeasesStub
from fluss_tiering.api.v1.lake_tiering_pb2_grpc import LakeTieringStub
from fluss_tiering.api.v1.tables_pb2_grpc import TablesStub
from fluss_tiering.client.calls.arguments import several
from fluss_tiering.client.channel import FollowedChannel
from fluss_tiering.wire.checks import MAX_ENTRIES

RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)
ResultT = TypeVar("ResultT")
ValueT = TypeVar("ValueT")


class Stubs:
    """The server's services on channels that are blocking or asyncio."""

    def __init__(self, followed: FollowedChannel) -> None:
        channel = cast("grpc.Channel", followed)
        self.tables = TablesStub(channel)
        self.leases = KvSnapshotLeasesStub(channel)
        self.lake_tiering = LakeTieringStub(channel)
        self.kv_scan = KvScanStub(channel)


@dataclass(frozen=True, slots=True)
class UnaryCall(Generic[RequestT, ResponseT, ResultT]):
    """A request that can be sent by a blocking or an asyncio client.

    Attributes:
        method: The function that picks the method from the stubs of a channel.
        request: The message to send.
        read: The function that turns the answer into values of the model, or raises the error that the answer names.
    """

    method: Callable[[Stubs], grpc.UnaryUnaryMultiCallable[RequestT, ResponseT]]
    request: RequestT
    read: Callable[[ResponseT], ResultT]


PAGE_SIZE: Final = 1000
"""The number of entries in each answer of a call that lists."""


def parts(values: Iterable[ValueT], at_once: int = MAX_ENTRIES) -> Iterator[Sequence[ValueT]]:
    """Yield values in parts that one request may name. There is one part at least, which may be empty.

    Raises:
        FlussTieringError: INVALID_REQUEST if it is no list. A text would be taken for a list of letters.
    """
    several(values)
    listed = list(values)
    for first in range(0, max(1, len(listed)), at_once):
        yield listed[first : first + at_once]


def next_page(call: UnaryCall[Any, Any, ResultT], response: Any) -> UnaryCall[Any, Any, ResultT] | None:  # noqa: ANN401
    """Return the call for the page that follows an answer; None if it was the last one.

    A server of an older version sends all entries in its first answer.
    """
    if not response.next_page_token:
        return None
    request = type(call.request)()
    request.CopyFrom(call.request)
    request.page_token = response.next_page_token
    return replace(call, request=request)
