"""A server with the credentials that a client has for it: opens the channels to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import grpc
import grpc.aio

from fluss_tiering.client.channel import CHANNEL_OPTIONS, RETRY_OPTIONS, FollowedChannel, Metadata
from fluss_tiering.client.security import ClientSecurity
from fluss_tiering.client.target import Target
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.wire.errors import SERVER_ID_METADATA_KEY

_TLS_NAME: Final = "grpc.ssl_target_name_override"
_AUTHORIZATION: Final = "authorization"
_NO_PROXY: Final = ("grpc.enable_http_proxy", 0)


class SecuredTarget:
    """A server and a client's credentials for it.

    Args:
        target: The server.
        security: The credentials.
        tls_name: The name that the server's certificate must have; None for the host of its address.

    Raises:
        FlussTieringError: INVALID_REQUEST if the token cannot be read, or would be sent to another machine without
            encryption.
    """

    def __init__(self, target: Target, security: ClientSecurity, tls_name: str | None = None) -> None:
        self._target = target
        self._security = security
        # A proxy of the environment would read the token of a client that needs no encryption on this machine.
        retries = RETRY_OPTIONS if len(target.addresses) == 1 else (("grpc.enable_retries", 0),)
        self._options = (*CHANNEL_OPTIONS, *retries, *((_NO_PROXY,) if target.is_loopback else ()))
        self._tls_options = self._options if tls_name is None else (*self._options, (_TLS_NAME, tls_name))
        self._closed = False
        is_open = not security.tls and not target.is_loopback and not security.allow_insecure
        if is_open and security.read_token() is not None:
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"the token would be sent to {target.address} without encryption, for everybody to read: use TLS "
                "(FLUSS_TIERING_TLS or --tls-ca), or allow it with FLUSS_TIERING_ALLOW_INSECURE=true",
            )

    def open_channel(self) -> FollowedChannel:
        """Open a blocking channel to each address, whose calls bring the token and name the server.

        After `close`, the calls raise FlussTieringError with INVALID_REQUEST.
        """
        return self._opened(grpc.insecure_channel, grpc.secure_channel)

    def open_aio_channel(self) -> FollowedChannel:
        """Open channels of the present event loop; see `open_channel`."""
        return self._opened(grpc.aio.insecure_channel, grpc.aio.secure_channel)

    def _opened(self, insecure: Callable[..., Any], secure: Callable[..., Any]) -> FollowedChannel:
        addresses = self._target.addresses
        if not self._security.tls:
            return FollowedChannel([insecure(each, self._options) for each in addresses], self._metadata)
        security = self._security
        credentials = grpc.ssl_channel_credentials(security.ca, security.key, security.cert)
        return FollowedChannel([secure(each, credentials, self._tls_options) for each in addresses], self._metadata)

    def _metadata(self) -> Metadata:
        """Return what names the server and brings the token."""
        if self._closed:
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"the client of the tiering server at {self._target.address} was closed: make a new one",
            )
        server_id, token = self._target.server_id, self._security.read_token()
        named = () if server_id is None else ((SERVER_ID_METADATA_KEY, server_id),)
        return named if token is None else (*named, (_AUTHORIZATION, f"Bearer {token}"))

    def close(self) -> None:
        """Refuse all further calls. gRPC's own errors for them differ by the kind of the call."""
        self._closed = True
