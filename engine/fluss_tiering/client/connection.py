"""The connection of a blocking client, and how its calls are made and fail."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import grpc
from google.protobuf.message import Message

from fluss_tiering.api.v1.kv_scan_pb2_grpc import KvScanStub
from fluss_tiering.api.v1.kv_snapshot_leases_pb2_grpc import KvSnapshotLeasesStub
from fluss_tiering.api.v1.lake_tiering_pb2_grpc import LakeTieringStub
from fluss_tiering.api.v1.tables_pb2_grpc import TablesStub
from fluss_tiering.client.channel import FollowedChannel, Tries, forked, require_own_process
from fluss_tiering.client.failed_call import FailedCall, error_of
from fluss_tiering.client.secured_target import SecuredTarget
from fluss_tiering.client.security import ClientSecurity
from fluss_tiering.client.target import Target, checked_timeout
from fluss_tiering.model.closing import Closing
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.wire.checks import MAX_ENTRIES

RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)
T = TypeVar("T")

if TYPE_CHECKING:
    # It is generic in its type stubs only.
    Method = grpc.UnaryUnaryMultiCallable[RequestT, ResponseT]

PAGE_SIZE: Final = 1000
"""The number of entries in each answer of a call that lists."""


class Stubs:
    """The server's services on channels that are blocking or asyncio."""

    def __init__(self, followed: FollowedChannel) -> None:
        channel = cast("grpc.Channel", followed)
        self.tables = TablesStub(channel)
        self.leases = KvSnapshotLeasesStub(channel)
        self.lake_tiering = LakeTieringStub(channel)
        self.kv_scan = KvScanStub(channel)


class Connection(Closing):
    """The connection of a client to the tiering server.

    Args:
        target: The address of the server; see `TieringClient`.
        timeout: The deadline of each call, and the longest wait for each message of a stream, in seconds.
        label: What errors name besides the address.
        security: The client's credentials; None for those that the environment variables name.

    Raises:
        FlussTieringError: INVALID_REQUEST as `TieringClient` raises it.
    """

    def __init__(
        self,
        target: str,
        *,
        timeout: float = 30.0,
        label: str | None = None,
        security: ClientSecurity | None = None,
    ) -> None:
        named = Target.parse(target)
        self._target = f"{named.address} ({label})" if label else named.address
        self._timeout = checked_timeout(timeout)
        require_own_process()
        self._security = security or ClientSecurity.from_environment()
        self._secured = SecuredTarget(named, self._security)
        self._channel = self._secured.open_channel()
        self._stubs = Stubs(self._channel)

    def close(self) -> None:
        """Close the connection. Calls that are in flight end with UNAVAILABLE, and later ones with INVALID_REQUEST."""
        self._secured.close()
        if not forked():
            self._channel.close()

    def _call(self, method: Method[RequestT, ResponseT], request: RequestT) -> ResponseT:
        tries = Tries(self._channel, self._timeout)
        while True:
            try:
                return method(request, timeout=self._timeout)
            except grpc.RpcError as failed:
                error = self._error_of(failed)
            time.sleep(tries.pause_s(error))

    def _pages(self, method: Method[Any, ResponseT], request: Any) -> Iterator[ResponseT]:  # noqa: ANN401 - that lists
        """Yield the answers of a call that lists, page by page."""
        request.page_size = PAGE_SIZE
        while True:
            response: Any = self._call(method, request)
            yield response
            if not response.next_page_token:
                return
            request.page_token = response.next_page_token

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except grpc.RpcError as error:
            # The message has all that gRPC said. Its traceback of many lines would hide that in the log of a task.
            failed = self._error_of(error)
            self._channel.follow(failed)
            raise failed from None

    def _error_of(self, error: grpc.RpcError) -> FlussTieringError:
        return error_of(cast("FailedCall", error), self._target, self._timeout)


def parts(values: Iterable[T], size: int = MAX_ENTRIES) -> Iterator[Sequence[T]]:
    """Yield values in parts that one request may name. There is one part at least, which may be empty."""
    listed = list(values)
    for first in range(0, max(1, len(listed)), size):
        yield listed[first : first + size]
