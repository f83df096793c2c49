"""What a connection remembers of requests that are not answered yet; no I/O, for blocking and asyncio alike."""

from __future__ import annotations

import itertools
from typing import Any, Generic, Protocol, TypeVar

from fluss_tiering.storage.fluss.rpc.api_keys import ServedApis
from fluss_tiering.storage.fluss.rpc.call import Call
from fluss_tiering.storage.fluss.rpc.errors import FlussConnectionError
from fluss_tiering.storage.fluss.rpc.frames import Response, encode_request


class Answered(Protocol):
    """What `concurrent.futures.Future` and `asyncio.Future` have in common."""

    def set_result(self, result: memoryview, /) -> None:
        """It came."""
        ...

    def set_exception(self, exception: BaseException, /) -> None:
        """It will not come."""
        ...

    def done(self) -> bool:
        """Whether it came, or nobody waits any more."""
        ...


FutureT = TypeVar("FutureT", bound=Answered)


class Dialogue(Generic[FutureT]):
    """Numbers requests and hands answers, which come in any order, to who waits for them."""

    def __init__(self, server: str, served: ServedApis) -> None:
        """For a connection to `server` that serves `served`."""
        self._server = server
        self._served = served
        self._numbers = itertools.count(1)
        self._waiting: dict[int, FutureT] = {}

    def ask(self, call: Call[Any, Any], answered: FutureT) -> bytes:
        """The frame to send.

        Raises:
            FlussTieringError: UNSUPPORTED_VERSION for what the server does not serve, INVALID_REQUEST when too large.
        """
        self._served.check(call.api, self._server)
        # Fluss counts in 32 bits.
        number = next(self._numbers) & 0x7FFFFFFF
        frame = encode_request(call.api, number, call.request.SerializeToString())
        self._waiting[number] = answered
        return frame

    def take(self, response: Response) -> None:
        """Hands over an answer; one that nobody waits for any more is dropped.

        Raises:
            FlussServerError: the server gave the whole connection up.
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

    def end(self, why: str) -> None:
        """Nothing will come any more: what waits ends with `FlussConnectionError`."""
        for number in list(self._waiting):
            answered = self._waiting.pop(number, None)
            if answered is not None and not answered.done():
                answered.set_exception(lost(self._server, why))


def lost(server: str, why: str) -> FlussConnectionError:
    """The connection broke behind a request."""
    return FlussConnectionError(f"lost the connection to the Fluss server at {server}: {why}", done_perhaps=True)


def unreachable(server: str, why: object) -> FlussConnectionError:
    """No connection could be made."""
    return FlussConnectionError(
        f"cannot reach the Fluss server at {server}: {why}; check the address and whether the cluster runs"
    )


def silent(server: str, what: str, seconds: float) -> FlussConnectionError:
    """The server took too long."""
    return FlussConnectionError(
        f"the Fluss server at {server} did not answer {what} within {seconds:.3g} s: it may be overloaded or stopped",
        done_perhaps=True,
    )


def no_greeting(server: str, why: object) -> FlussConnectionError:
    """Somebody is there, but does not begin as a Fluss server does."""
    return FlussConnectionError(
        f"{server} did not answer as a Fluss server does: {why}; check that it is the address of one, as in its "
        "bind.listeners, and that it runs"
    )
