"""A client that waits while the server is unavailable, so that a restart of the server ends no round."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fluss_tiering.client import TieringClient
from fluss_tiering.client.connection import RequestT, ResponseT
from fluss_tiering.model.errors import SERVER_AWAY
from fluss_tiering.spark.retry import Retry
from fluss_tiering.spark.runtime import SYSTEM, Event, Runtime

if TYPE_CHECKING:
    from fluss_tiering.client.connection import Method

_UNAVAILABLE_TIMEOUT_S: Final = 60.0
"""Half of the time after which the server interrupts a round that sends no heartbeats."""


class RetryingClient(TieringClient):
    """A `TieringClient` for rounds, whose calls are all safe to repeat.

    Args:
        target: The server's address, "host:port".
        stopped: The event that ends all waiting when it is set.
        unavailable_timeout_s: How long an unavailable server is called again, in seconds.
        runtime: The clock that the time-out is measured with.
    """

    def __init__(
        self,
        target: str,
        *,
        stopped: Event,
        unavailable_timeout_s: float = _UNAVAILABLE_TIMEOUT_S,
        runtime: Runtime = SYSTEM,
    ) -> None:
        super().__init__(target)
        self._retry = Retry(stopped, codes=SERVER_AWAY, within_s=unavailable_timeout_s, runtime=runtime)

    def _call(self, method: Method[RequestT, ResponseT], request: RequestT) -> ResponseT:
        return self._retry(super()._call, method, request)
