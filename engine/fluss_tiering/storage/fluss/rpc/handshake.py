"""How a connection begins: the server says what it serves, then perhaps the client who it is; pure."""

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
from fluss_tiering.storage.fluss.rpc.call import Call, Role

_MECHANISM: Final = "PLAIN"


def api_versions(role: Role) -> Call[ApiVersionsResponse, ServedApis]:
    """What the servers of a role serve."""
    return Call(
        ApiKey.API_VERSIONS,
        ApiVersionsRequest(client_software_name="fluss-tiering", client_software_version="1"),
        ApiVersionsResponse,
        ServedApis.of,
        role,
    )


@dataclass(frozen=True, slots=True)
class Credentials:
    """User and password for SASL/PLAIN; the password is in no text of it.

    Raises:
        FlussTieringError: INVALID_REQUEST for an empty one, or one with a NUL, which PLAIN cannot carry.
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
        """What PLAIN sends: no authorization id, user, password."""
        return f"\0{self.username}\0{self.password}".encode()


def handshake(credentials: Credentials | None, server: str) -> Generator[Call[Any, Any], Any, ServedApis]:
    """Yields the calls to make, one at a time, takes their results and returns what the server serves.

    Raises:
        FlussTieringError: UNSUPPORTED_VERSION when there are credentials but the server cannot be given any;
            `FlussServerError` with AUTHENTICATE_EXCEPTION, from the caller, when it does not take them.
    """
    served: ServedApis = yield api_versions(Role.ANY)
    if credentials is not None:
        served.check(ApiKey.AUTHENTICATE, server)
        yield Call(
            ApiKey.AUTHENTICATE,
            AuthenticateRequest(protocol=_MECHANISM, token=credentials.token()),
            AuthenticateResponse,
            # PLAIN has one step: a challenge in the answer, as Fluss sends an empty one, asks for nothing more.
            lambda _: None,
            Role.ANY,
        )
    return served
