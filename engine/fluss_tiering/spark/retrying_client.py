"""A client that waits for a server that is away: a restart of the server ends no round (Fluss issue #3681)."""

from __future__ import annotations

import threading
from typing import Any, Final

from tenacity import (
    Retrying,
    retry_if_exception,
    stop_after_delay,
    stop_any,
    stop_when_event_set,
    wait_random_exponential,
)
from tenacity.nap import sleep_using_event

from fluss_tiering.client import TieringClient
from fluss_tiering.client.calls.call import UnaryCall
from fluss_tiering.client.client import ResultT
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

_PATIENCE_S: Final = 60.0
"""Half of the time after which the server fails a silent round (S4)."""


class RetryingClient(TieringClient):
    """A `TieringClient` of rounds, whose calls are all safe to repeat.

    Args:
        target: "host:port".
        stopped: set when nothing is worth waiting for any more.
        unavailable_timeout_s: for how long an unavailable server is called again.
    """

    def __init__(self, target: str, *, stopped: threading.Event, unavailable_timeout_s: float = _PATIENCE_S) -> None:
        super().__init__(target)
        self._retrying = Retrying(
            retry=retry_if_exception(_is_unavailable),
            wait=wait_random_exponential(multiplier=0.2, max=5),
            stop=stop_any(stop_after_delay(unavailable_timeout_s), stop_when_event_set(stopped)),
            sleep=sleep_using_event(stopped),
            reraise=True,
        )

    def _call(self, call: UnaryCall[Any, Any, ResultT]) -> ResultT:
        result: ResultT = self._retrying.copy()(super()._call, call)
        return result


def _is_unavailable(error: BaseException) -> bool:
    return isinstance(error, FlussTieringError) and error.code is ErrorCode.UNAVAILABLE
