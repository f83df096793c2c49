"""The server that a client is for: its address and, if the client names it, its id."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final, Self, cast

import grpc

from fluss_tiering.client.fork import require_own_process
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.wire.server_id import SERVER_ID_METADATA_KEY

AUTHORIZATION_METADATA_KEY: Final = "authorization"

Metadata = tuple[tuple[str, str], ...]
"""What goes with a call beside its request."""

DEFAULT_PORT: Final = 9133
"""The port is near Fluss's own port 9123. Fluss's Docker set-up uses 9124 to 9126 for tablet servers."""

_LAST_PORT: Final = 65535

DEFAULT_TARGET: Final = f"127.0.0.1:{DEFAULT_PORT}"


@dataclass(frozen=True, slots=True)
class Target:
    """A server, as a client names it.

    Attributes:
        address: The address as gRPC takes it: HOST:PORT, or a resolver's scheme before that.
        server_id: The id that the server must have; None for any server.
    """

    address: str
    server_id: str | None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the server that a text such as `127.0.0.1:9133` or `ID@127.0.0.1:9133` names.

        Raises:
            FlussTieringError: INVALID_REQUEST if the host, the port or the id is missing. gRPC's own error would not
                say so.
        """
        if not isinstance(text, str):
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"the tiering server's address is {text!r}: expected a text HOST:PORT, for example {DEFAULT_TARGET}",
            )
        server_id, at, address = text.rpartition("@")
        if scheme := re.match("https?://", address):
            with_tls = "; --tls or the variable FLUSS_TIERING_TLS asks for TLS" if scheme[0] == "https://" else ""
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"the tiering server's address is {text!r}: expected HOST:PORT without {scheme[0]}{with_tls}",
            )
        host, _, port = address.rpartition(":")
        if not host or not re.fullmatch("[0-9]{1,5}", port) or re.search(r"\s", host):
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"the tiering server's address is {text!r}: expected HOST:PORT, for example {DEFAULT_TARGET}",
            )
        if not 1 <= int(port) <= _LAST_PORT:
            # gRPC takes the rest of a division by 65536, which may be the port of another server.
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"the tiering server's address is {text!r}: expected a port from 1 to {_LAST_PORT}",
            )
        if at and not re.fullmatch(r"[A-Za-z0-9_.-]+", server_id):
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"the tiering server's id in {text!r} is {server_id!r}: expected the id that the server logs at its "
                "start, as in ID@HOST:PORT, or no id and no @",
            )
        return cls(address, server_id or None)

    @property
    def is_loopback(self) -> bool:
        """Whether the address is one that only this machine reaches."""
        return is_loopback(self.address.rpartition(":")[0].rpartition("/")[2])

    def channel(self, channel: grpc.Channel, token: Callable[[], str | None]) -> grpc.Channel:
        """Return the channel, blocking or asyncio, with calls that name the server's id and bring the client's token.

        The calls raise FlussTieringError with INVALID_REQUEST in a process that was forked after the first one, and if
        the token cannot be read.

        Args:
            channel: The channel to the server's address.
            token: Returns the token, for each call; None if the client has none.
        """
        named = () if self.server_id is None else ((SERVER_ID_METADATA_KEY, self.server_id),)

        def metadata() -> Metadata:
            present = token()
            return named if present is None else (*named, (AUTHORIZATION_METADATA_KEY, f"Bearer {present}"))

        return cast("grpc.Channel", _Channel(channel, metadata))


class _Channel:
    """A channel whose calls carry metadata. The interceptors of gRPC differ for blocking and for asyncio channels."""

    def __init__(self, channel: Any, metadata: Callable[[], Metadata]) -> None:  # noqa: ANN401 - of two kinds
        self._channel = channel
        self._metadata = metadata

    def unary_unary(self, *method: Any, **coders: Any) -> _Call:
        return _Call(self._channel.unary_unary(*method, **coders), self._metadata)

    def unary_stream(self, *method: Any, **coders: Any) -> _Call:
        return _Call(self._channel.unary_stream(*method, **coders), self._metadata)

    def stream_unary(self, *method: Any, **coders: Any) -> _Call:
        return _Call(self._channel.stream_unary(*method, **coders), self._metadata)

    def stream_stream(self, *method: Any, **coders: Any) -> _Call:
        return _Call(self._channel.stream_stream(*method, **coders), self._metadata)


class _Call:
    def __init__(self, call: Any, metadata: Callable[[], Metadata]) -> None:  # noqa: ANN401 - of eight kinds
        self._call = call
        self._metadata = metadata

    def __call__(self, request: object, **options: Any) -> Any:  # noqa: ANN401 - an answer, a stream or an awaitable
        require_own_process()
        return self._call(request, metadata=self._metadata(), **options)

    def future(self, request: object, **options: Any) -> Any:  # noqa: ANN401 - grpc.Future is generic in stubs only
        require_own_process()
        return self._call.future(request, metadata=self._metadata(), **options)


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a host, by its name or address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
