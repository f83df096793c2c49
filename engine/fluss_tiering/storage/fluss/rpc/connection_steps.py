"""The steps of a connection without I/O, which the blocking and the asyncio connection share.

The handshake comes first: the server says which calls it serves, then the client may say who it is. After it each
answer is handed to the request that it belongs to.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

from fluss_tiering.api.fluss.v1.connection_pb2 import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    AuthenticateRequest,
    AuthenticateResponse,
)
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey, ServedApis
from fluss_tiering.storage.fluss.rpc.call import Call, ServerKind
from fluss_tiering.storage.fluss.rpc.errors import FlussConnectionError
from fluss_tiering.storage.fluss.rpc.frames import Response, encode_request

_MECHANISM: Final = "PLAIN"
CLOSED: Final = "this program closed it, because it ends, or because its server leads no more"
"""Why a connection ended that was not lost."""


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


class AnswerFuture(Protocol):
    """The methods that `concurrent.futures.Future` and `asyncio.Future` have in common."""

    def set_result(self, result: memoryview, /) -> None:
        """Hand over the answer."""
        ...

    def set_exception(self, exception: BaseException, /) -> None:
        """Say why there will be no answer."""
        ...

    def done(self) -> bool:
        """Return whether the answer has come, or nobody waits for it any more."""
        ...


FutureT = TypeVar("FutureT", bound=AnswerFuture)


class RequestCorrelator(Generic[FutureT]):
    """Numbers the requests of one connection and hands each answer to the caller that waits for it.

    Answers may come in any order.
    """

    def __init__(self, server: str, served: ServedApis) -> None:
        """Begin without requests.

        Args:
            server: The server's name, for errors.
            served: The calls that the server serves.
        """
        self._server = server
        self._served = served
        self._numbers = itertools.count(1)
        self._waiting: dict[int, FutureT] = {}

    def register(self, call: Call[Any, Any], answered: FutureT) -> bytes:
        """Number a request, remember who waits for its answer, and return the frame to send.

        Raises:
            FlussTieringError: UNSUPPORTED_VERSION if the server does not serve the call; INVALID_REQUEST if the
                request is too large.
        """
        version = self._served.version_of(call.api, self._server)
        # Fluss's request ids are signed 32-bit numbers.
        number = next(self._numbers) & 0x7FFFFFFF
        frame = encode_request(call.api, version, number, call.request.SerializeToString())
        self._waiting[number] = answered
        return frame

    def deliver(self, response: Response) -> None:
        """Hand an answer to the caller that waits for it. Drop the answer if nobody waits any more.

        Raises:
            FlussServerError: The server reported a failure of the whole connection.
        """
        if response.request_id is None:
            raise response.error or FlussConnectionError(f"the Fluss server at {self._server} gave up the connection")
        answered = self._waiting.pop(response.request_id, None)
        if answered is None or answered.done():
            return
        if response.error is not None:
            answered.set_exception(response.error)
        else:
            answered.set_result(response.message)

    def fail_all(self, why: str) -> None:
        """End all requests that still wait with `FlussConnectionError`: no answer will come any more."""
        for number in list(self._waiting):
            answered = self._waiting.pop(number, None)
            if answered is not None and not answered.done():
                answered.set_exception(lost(self._server, why))


def lost(server: str, why: str) -> FlussConnectionError:
    """Return the error for a connection that broke after a request had been sent."""
    return FlussConnectionError(f"lost the connection to the Fluss server at {server}: {why}", outcome_unknown=True)


def unreachable(server: str, why: object) -> FlussConnectionError:
    """Return the error for a server to which no connection could be made."""
    return FlussConnectionError(
        f"cannot reach the Fluss server at {server}: {why}; check the address and whether the cluster runs"
    )


def silent(server: str, what: str, seconds: float) -> FlussConnectionError:
    """Return the error for a server that took too long to answer."""
    return FlussConnectionError(
        f"the Fluss server at {server} did not answer {what} within {seconds:.3g} s: it may be overloaded or stopped",
        outcome_unknown=True,
    )


def no_greeting(server: str, why: object) -> FlussConnectionError:
    """Return the error for a server that is there but does not answer the handshake as a Fluss server does."""
    return FlussConnectionError(
        f"{server} did not answer as a Fluss server does: {why}; check that it is the address of one, as in its "
        "bind.listeners, and that it runs"
    )
