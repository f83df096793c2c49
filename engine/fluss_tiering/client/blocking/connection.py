"""The connection of a blocking client, and how its calls are made and fail."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar, cast

import grpc

from fluss_tiering.client.calls.arguments import seconds
from fluss_tiering.client.calls.call import Stubs, UnaryCall, next_page
from fluss_tiering.client.failed_call import FailedCall, error_of
from fluss_tiering.client.fork import forked, require_own_process
from fluss_tiering.client.secured_target import SecuredTarget
from fluss_tiering.client.security import ClientSecurity
from fluss_tiering.client.target import Target
from fluss_tiering.client.throttling import Tries
from fluss_tiering.model.closing import Closing
from fluss_tiering.model.errors import FlussTieringError

ResultT = TypeVar("ResultT")
T = TypeVar("T")


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
        self._timeout = seconds("the timeout of a client is", timeout)
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

    def _call(self, call: UnaryCall[Any, Any, ResultT]) -> ResultT:
        tries = Tries(self._channel, self._timeout)
        while True:
            try:
                return call.read(call.method(self._stubs)(call.request, timeout=self._timeout))
            except grpc.RpcError as failed:
                error = self._error_of(failed)
            time.sleep(tries.pause_s(error))

    def _list(self, call: UnaryCall[Any, Any, list[T]]) -> list[T]:
        entries: list[T] = []
        page: UnaryCall[Any, Any, list[T]] | None = call
        while page is not None:
            response = self._call(replace(page, read=lambda response: response))
            entries += page.read(response)
            page = next_page(page, response)
        return entries

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
