"""The handshake of a connection: the server says which calls it serves, then the client may say who it is.

There is no I/O here: blocking and asyncio connections use the same code.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, Final

from fluss_tiering.api.fluss.v1.connection_pb2 import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    AuthenticateRequest,
    AuthenticateResponse,
)
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey, ServedApis
from fluss_tiering.storage.fluss.rpc.call import Call, ServerKind

_MECHANISM: Final = "PLAIN"


def api_versions(role: ServerKind) -> Call[ApiVersionsResponse, ServedApis]:
    """Make the call that asks a server of this role which calls it serves."""
    return Call(
        ApiKey.API_VERSIONS,
        ApiVersionsRequest(client_software_name="fluss-tiering", client_software_version="1"),
        ApiVersionsResponse,
        ServedApis.of,
        role,
    )


@dataclass(frozen=True, slots=True)
class Credentials:
    """The user and the password for SASL/PLAIN. `repr` does not show the password.

    Raises:
        FlussTieringError: INVALID_REQUEST if one of them is empty or has a NUL character, which PLAIN cannot carry.
    """

    username: str
    password: str = field(repr=False)

    def __post_init__(self) -> None:
        for what, value in (("user name", self.username), ("password", self.password)):
            if not value or "\0" in value:
                raise FlussTieringError(
                    ErrorCode.INVALID_REQUEST,
                    f"the {what} for Fluss is empty or has a NUL character: expected the one of the cluster's JAAS "
                    "configuration",
                )

    def token(self) -> bytes:
        """Return the token that PLAIN sends: an empty authorization id, the user and the password."""
        return f"\0{self.username}\0{self.password}".encode()


def handshake(credentials: Credentials | None, server: str) -> Generator[Call[Any, Any], Any, ServedApis]:
    """Yield the calls to make, one at a time, take their results and return which calls the server serves.

    Raises:
        FlussTieringError: UNSUPPORTED_VERSION if there are credentials but the server does not take any.
        FlussServerError: The server refused the credentials (AUTHENTICATE_EXCEPTION); the caller throws this in.
    """
    served: ServedApis = yield api_versions(ServerKind.ANY)
    if credentials is not None:
        served.version_of(ApiKey.AUTHENTICATE, server)
        yield Call(
            ApiKey.AUTHENTICATE,
            AuthenticateRequest(protocol=_MECHANISM, token=credentials.token()),
            AuthenticateResponse,
            # PLAIN has one step. Fluss sends an empty challenge in its answer, which asks for nothing more.
            lambda _: None,
            ServerKind.ANY,
        )
    return served
