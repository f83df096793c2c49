"""Calls that are tried again, with a pause that grows, until they work or an event ends the tries."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception, wait_random_exponential

from fluss_tiering.client import TieringClient
from fluss_tiering.client.connection import RequestT, ResponseT
from fluss_tiering.model.errors import SERVER_AWAY, ErrorCode, FlussTieringError
from fluss_tiering.spark.runtime import SYSTEM, Event, Runtime

if TYPE_CHECKING:
    from fluss_tiering.client.connection import Method

ArgumentsT = ParamSpec("ArgumentsT")
ResultT = TypeVar("ResultT")

logger = logging.getLogger(__name__)
_QUIET_S: Final = 60.0
"""So long the failure of a call is not told again."""
_UNAVAILABLE_TIMEOUT_S: Final = 60.0
"""Half of the time after which the server interrupts a round that sends no heartbeats."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Tries a call again until it works, and raises its last error when it does not.

    Attributes:
        stopped: The event that ends the tries, also in the middle of a pause.
        codes: The error codes that are worth another try; None for every error code.
        within_s: How long a call is tried again, in seconds; None for as long as `stopped` is not set.
        first_pause_s: The longest pause after the first try, in seconds. It doubles with every try.
        longest_pause_s: The longest pause between two tries, in seconds.
        what: What is tried, for a warning when a try fails, and once a minute after that; None for no warning.
        runtime: The clock that `within_s` is measured with.
    """

    stopped: Event
    codes: frozenset[ErrorCode] | None = None
    within_s: float | None = None
    first_pause_s: float = 0.2
    longest_pause_s: float = 5.0
    what: str | None = None
    runtime: Runtime = SYSTEM

    def __call__(
        self, call: Callable[ArgumentsT, ResultT], *args: ArgumentsT.args, **kwargs: ArgumentsT.kwargs
    ) -> ResultT:
        """Return what the call returns.

        Raises:
            FlussTieringError: the call's last error, once it is not worth another try, or the tries are ended.
        """
        began = self.runtime.monotonic()
        told = -inf

        def warn(state: RetryCallState) -> None:
            nonlocal told
            now = self.runtime.monotonic()
            if self.what is not None and state.outcome is not None and now - told >= _QUIET_S:
                told = now
                logger.warning("%s: trying again: %s", self.what, state.outcome.exception())

        def is_over(_: RetryCallState) -> bool:
            late = self.within_s is not None and self.runtime.monotonic() - began >= self.within_s
            return late or self.stopped.is_set()

        retrying = Retrying(
            retry=retry_if_exception(self._is_worth_another_try),
            wait=wait_random_exponential(multiplier=self.first_pause_s, max=self.longest_pause_s),
            stop=is_over,
            sleep=self._pause,
            before_sleep=warn,
            reraise=True,
        )
        return retrying(call, *args, **kwargs)

    def _is_worth_another_try(self, error: BaseException) -> bool:
        return isinstance(error, FlussTieringError) and (self.codes is None or error.code in self.codes)

    def _pause(self, seconds: float) -> None:
        self.stopped.wait(seconds)


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
