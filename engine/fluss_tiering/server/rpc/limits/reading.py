"""Reads the one request of a call, in a bounded time and with a bounded number of slow ones."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable
from typing import Final

from fluss_tiering.model.errors import ErrorCode, FlussTieringError, ThrottledError
from fluss_tiering.server.rpc.limits.running import Phase, RunningCall
from fluss_tiering.server.rpc.limits.sizes import OF_BUCKETS, RequestSizes
from fluss_tiering.server.security.identity import ANYBODY
from fluss_tiering.server.security.rates import CallRates

_QUICK_S: Final = 0.5
"""Nearly each request comes with the beginning of its call. One that has not come after this time is slow."""
_DEADLINE_S: Final = 30.0
"""How long a request may take in all."""
_SLOW_OF_ONE: Final = 8
_SLOW_OF_ALL: Final = 32
"""The number of slow requests. Each may take as much memory as the largest request of any method."""
_RETRY_MS: Final = 1000
_DECODING: Final = 8
"""How much more work it is to decode a request of small entries than to write an answer."""
_LITTLE_BYTES: Final = 1 << 10


class RequestReads:
    """Reads requests. It is used on the event loop only.

    Args:
        sizes: The largest sizes of requests.
        rates: Counts the bytes of each caller.
    """

    def __init__(self, sizes: RequestSizes, rates: CallRates) -> None:
        self._sizes = sizes
        self._rates = rates
        self._slow: Counter[str] = Counter()

    async def one(self, reading: Awaitable[object], method: str, call: RunningCall) -> bytes:
        """Return the one request of a call.

        Args:
            reading: The request as it is read; None or gRPC's end of a stream if there is none.
            method: The path of the method.
            call: The call.

        Raises:
            FlussTieringError: INVALID_REQUEST if there is none, or if it is too large; UNAVAILABLE if it is too slow.
            ThrottledError: Too many other requests are slow.
        """
        call.waits_for(Phase.REQUEST)
        try:
            message = await reading
        except asyncio.CancelledError as cancelled:
            raise call.reason(cancelled) from None
        finally:
            call.waits_for(Phase.WORK)
            if call.is_slow:
                self._no_longer_slow(call)
        if not isinstance(message, bytes):
            raise FlussTieringError(ErrorCode.INVALID_REQUEST, "the call has no request: expected one")
        if len(message) > _LITTLE_BYTES and method not in OF_BUCKETS:
            self._rates.spend(call.caller.identity, _DECODING * len(message))
        self._sizes.check(message, method)
        return message

    def look(self, call: RunningCall, waited_s: float) -> None:
        """End a call whose request does not come, or if too many are slow.

        Args:
            call: A call that waits for its request.
            waited_s: For how many seconds.
        """
        if waited_s > _DEADLINE_S:
            call.end(
                FlussTieringError(
                    ErrorCode.UNAVAILABLE, f"the request did not arrive within {_DEADLINE_S:.0f} s: send it again"
                )
            )
        elif waited_s > _QUICK_S and not call.is_slow:
            name = _name(call)
            if self._slow.total() >= _SLOW_OF_ALL or (name and self._slow[name] >= _SLOW_OF_ONE):
                call.end(ThrottledError("too many requests come too slowly: try again later", _RETRY_MS))
            else:
                call.is_slow = True
                self._slow[name] += 1

    def _no_longer_slow(self, call: RunningCall) -> None:
        call.is_slow = False
        name = _name(call)
        self._slow[name] -= 1
        if not self._slow[name]:
            del self._slow[name]


def _name(call: RunningCall) -> str:
    return "" if call.caller.identity is ANYBODY else call.caller.identity.counted_as
