"""A unary call as a value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import grpc
from google.protobuf.message import Message

from fluss_tiering.api.v1.kv_scan_pb2_grpc import KvScanStub
from fluss_tiering.api.v1.kv_snapshot_leases_pb2_grpc import KvSnapshotLeasesStub
from fluss_tiering.api.v1.lake_tiering_pb2_grpc import LakeTieringStub
from fluss_tiering.api.v1.tables_pb2_grpc import TablesStub

RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)
ResultT = TypeVar("ResultT")


class Stubs:
    """The server's services on one channel, blocking or asyncio."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.tables = TablesStub(channel)
        self.leases = KvSnapshotLeasesStub(channel)
        self.lake_tiering = LakeTieringStub(channel)
        self.kv_scan = KvScanStub(channel)


@dataclass(frozen=True, slots=True)
class UnaryCall(Generic[RequestT, ResponseT, ResultT]):
    """One request, the method it goes to and the reading of its answer."""

    method: Callable[[Stubs], grpc.UnaryUnaryMultiCallable[RequestT, ResponseT]]
    request: RequestT
    read: Callable[[ResponseT], ResultT]
