"""Forwards calls to the active server as bytes, and returns its answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final, NoReturn

import grpc
import grpc.aio
import structlog

from fluss_tiering.client.channel import KEEPALIVE_OPTIONS, MAX_MESSAGE_BYTES
from fluss_tiering.client.failed_call import tls_cause
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.audit.call import FORWARDED_FOR_KEY, REQUEST_ID_KEY, forwarded_metadata, request_id_metadata
from fluss_tiering.server.rpc.roles import Context
from fluss_tiering.server.security.authentication import FORWARDED_KEY, FORWARDED_NAME_KEY
from fluss_tiering.server.security.certificate_names import names_in
from fluss_tiering.server.settings import ServerSettings
from fluss_tiering.wire.errors import ERROR_CODE_METADATA_KEY

_OPTIONS: Final = (
    *KEEPALIVE_OPTIONS,
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # The client itself tries again.
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1000),
)
_ENDED_UNREAD: Final = "Internal error from Core"
_OTHER_AUTHORITY: Final = (
    "its certificate is not of an authority that this server trusts: set tls-ca-file on each of the servers to the "
    "authority of their certificates"
)
# Metadata of a connection, which each of the two connections has itself. A client cannot name itself as another one.
_OWN_METADATA: Final = (
    "grpc-",
    "user-agent",
    "content-type",
    "te",
    ":",
    FORWARDED_NAME_KEY,
    FORWARDED_FOR_KEY,
    REQUEST_ID_KEY,
)

logger = structlog.get_logger(__name__)

if TYPE_CHECKING:
    # A call with one request has the same methods, as far as they are used here.
    Call = grpc.aio.StreamStreamCall[bytes, bytes]


class ActiveServer:
    """A connection to the active server.

    Args:
        address: The "host:port" of the active server.
        credentials: The credentials of the connection; None without TLS.
    """

    def __init__(self, address: str, credentials: grpc.ChannelCredentials | None = None) -> None:
        self.address = address
        if credentials is None:
            self._channel = grpc.aio.insecure_channel(address, _OPTIONS)
        else:
            self._channel = grpc.aio.secure_channel(address, credentials, _OPTIONS)
        self._closed = False
        self._has_told = False

    def call(
        self, method: str, requests: AsyncIterator[bytes] | bytes, context: Context, timeout: float | None
    ) -> Call:
        """Begin to forward a call.

        Args:
            method: The path of the method.
            requests: The serialized requests, or the one request of a method that takes one.
            context: The context of the call at this server.
            timeout: The time limit in seconds; None for no limit.
        """
        names = names_in(context.auth_context())
        metadata = [
            *_passed_on(context.invocation_metadata()),
            (FORWARDED_KEY, "1"),
            # The active server sees the certificate of this server, not the client's.
            *((FORWARDED_NAME_KEY, name.encode()) for name in names),
            *forwarded_metadata(),
        ]
        one = isinstance(requests, bytes)
        passed_on: Any = self._channel.unary_stream(method) if one else self._channel.stream_stream(method)
        call: Call = passed_on(requests, timeout=timeout, metadata=metadata)
        return call

    async def answers(self, call: Call, context: Context) -> AsyncIterator[bytes]:
        """Yield the active server's responses, and return its metadata to the client.

        Raises:
            FlussTieringError: UNAVAILABLE if the server cannot be reached or is no longer the active one.
        """
        try:
            await context.send_initial_metadata(_passed_on(await call.initial_metadata()))
            async for response in call:
                yield response
            trailing = _passed_on(await call.trailing_metadata())
            context.set_trailing_metadata((*trailing, *request_id_metadata()))
        except grpc.aio.AioRpcError as error:
            await self.fail(error, context)
        except asyncio.CancelledError:
            if not self._closed:
                raise
            raise self.unreachable("it is no longer the active server") from None
        finally:
            call.cancel()

    async def fail(self, error: grpc.aio.AioRpcError, context: Context) -> NoReturn:
        """Abort the client's call with the active server's error, or raise that this server cannot be reached."""
        trailing = _passed_on(error.trailing_metadata())
        if self._closed:
            # gRPC answers such a call with one of several statuses.
            raise self.unreachable("it is no longer the active server") from error
        if gave_no_answer(error):
            raise self.unreachable(error.details() or "no answer") from error
        await context.abort(error.code(), error.details() or "", (*trailing, *request_id_metadata()))

    def unreachable(self, reason: str) -> FlussTieringError:
        """Return the error that the active server does not answer. Log it once if it needs somebody to mend it."""
        cause = tls_cause(reason, _OTHER_AUTHORITY)
        if cause is None:
            remedy = f"{reason}; try again in a few seconds: by then it is back, or this server takes over"
        else:
            remedy = f"the TLS handshake failed: {cause} ({reason.removesuffix(': OK')})"
        message = f"the active server at {self.address} cannot be reached from this standby server: {remedy}"
        if cause is not None and not self._has_told:
            self._has_told = True
            logger.warning("calls cannot be forwarded to the active server", error=message)
        return FlussTieringError(ErrorCode.UNAVAILABLE, message)

    async def close(self) -> None:
        """Close the connection, which ends the running calls."""
        self._closed = True
        await self._channel.close()


def gave_no_answer(error: grpc.aio.AioRpcError) -> bool:
    """Return whether the error is one of the connection, and not an answer of the active server."""
    if ERROR_CODE_METADATA_KEY in dict(_passed_on(error.trailing_metadata())):
        return False
    # gRPC puts an error of its own in place of the status if the server ends a call before it has read the request.
    ended_unread = error.code() is grpc.StatusCode.INTERNAL and error.details() == _ENDED_UNREAD
    return ended_unread or error.code() is grpc.StatusCode.UNAVAILABLE


def _passed_on(metadata: Any) -> tuple[tuple[str, str | bytes], ...]:  # noqa: ANN401 - several kinds of pairs
    return tuple((key, value) for key, value in metadata or () if not key.startswith(_OWN_METADATA))


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
