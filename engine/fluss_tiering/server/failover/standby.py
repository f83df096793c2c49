"""The standby server: it refuses calls and says which server is active. It forwards lists of statuses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, Final, NoReturn

import grpc
import grpc.aio

from fluss_tiering.client.channel import MAX_MESSAGE_BYTES
from fluss_tiering.model.errors import ErrorCode, FlussTieringError, NotActiveError
from fluss_tiering.server.edge.callers.authentication import AUTHORIZATION_KEY, Authenticator
from fluss_tiering.server.edge.callers.executor_tokens import UncheckedExecutorTokens
from fluss_tiering.server.edge.server_roles import Context, Handler, bytes_handler
from fluss_tiering.server.settings.server_settings import ServerSettings
from fluss_tiering.wire.errors import code_from_metadata

_FORWARDED: Final = "/fluss_tiering.v1.LakeTiering/ListTieringStatuses"
"""Anybody who asks any of the servers for statuses gets them (S28)."""
_FORWARDED_KEY: Final = "fluss-tiering-forwarded"
"""The metadata key of forwarded calls, so that no call is forwarded in a circle."""
_TIMEOUT_S: Final = 10.0
_OPTIONS: Final = (("grpc.enable_retries", 0), ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES))


class StandbyRole:
    """A server that waits until it may take over.

    Args:
        asks: Whether callers must prove who they are. A call is forwarded with its token, and never without one.
        credentials: Returns the credentials of a connection to another server; None without TLS.
    """

    server_id: str | None = None
    """The active server compares the id."""
    executors: Authenticator = UncheckedExecutorTokens()

    def __init__(
        self, *, asks: bool = False, credentials: Callable[[], grpc.ChannelCredentials | None] = lambda: None
    ) -> None:
        self._asks = asks
        self._credentials = credentials
        self._active: str | None = None
        self._reason = "this server is starting"

    def follow(self, address: str | None, reason: str) -> None:
        """Name another server to the callers from now on.

        Args:
            address: The "host:port" of the active server; None if there is none.
            reason: The reason why no server is active, for the clients.
        """
        self._active, self._reason = address, reason

    def doubt(self, reason: str) -> None:
        """Go on as before, because it is not known whether another server is active.

        Args:
            reason: The reason why it is not known, for the clients of a server that does not know of any.
        """
        self._reason = reason

    def handler(self, method: str) -> Handler:
        """Return a handler that refuses, or one that forwards."""
        return bytes_handler(self._forward if method == _FORWARDED else self._answer)

    def check(self) -> None:
        """Do nothing: the handlers refuse."""

    def end_streams(self) -> None:
        """Do nothing: there are no streams."""

    async def _answer(self, requests: AsyncIterator[bytes], context: Context) -> AsyncIterator[bytes]:
        del requests, context
        self._refuse()
        yield b""  # makes the function a generator

    def _refuse(self) -> NoReturn:
        raise NotActiveError(self._active, self._reason)

    async def _forward(self, requests: AsyncIterator[bytes], context: Context) -> AsyncIterator[bytes]:
        given = dict(context.invocation_metadata() or ())
        passed_on = [(key, given[key]) for key in (AUTHORIZATION_KEY,) if key in given]
        if self._active is None or _FORWARDED_KEY in given or (self._asks and not passed_on):
            self._refuse()
        async with self._channel(self._active) as channel:
            call: Any = channel.unary_unary(_FORWARDED)
            try:
                metadata = [*passed_on, (_FORWARDED_KEY, "1")]
                yield await call(await anext(requests), metadata=metadata, timeout=_TIMEOUT_S)
            except grpc.aio.AioRpcError as error:
                if code_from_metadata(error.trailing_metadata()) is None:
                    # Nobody answered.
                    self._refuse()
                await context.abort(error.code(), error.details() or "", tuple(error.trailing_metadata() or ()))

    def _channel(self, address: str) -> grpc.aio.Channel:
        credentials = self._credentials()
        if credentials is None:
            return grpc.aio.insecure_channel(address, _OPTIONS)
        return grpc.aio.secure_channel(address, credentials, _OPTIONS)


def server_credentials(settings: ServerSettings) -> grpc.ChannelCredentials | None:
    """Return the credentials for a connection to another server of the same settings; None without TLS.

    This server shows its own certificate, which the other one asks for if clients must have one.

    Raises:
        FlussTieringError: INVALID_REQUEST if a file cannot be read.
    """
    files = settings.tls_files
    if files is None:
        return None
    try:
        ca = None if settings.tls_ca_file is None else settings.tls_ca_file.read_bytes()
        return grpc.ssl_channel_credentials(ca, files.key.read_bytes(), files.cert.read_bytes())
    except OSError as error:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST, f"TLS: {error.filename} cannot be read: {error.strerror or error}"
        ) from error
