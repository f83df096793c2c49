"""Waits of a client whose calls no server answers yet: there are too many calls, or no server is active."""

from __future__ import annotations

import random
import time
from typing import Final

from fluss_tiering.client.channel import FollowedChannel
from fluss_tiering.model.errors import ErrorCode, FlussTieringError, ThrottledError

_SPREAD: Final = 1.5
_NO_SERVER_S: Final = 1.0
"""How long a client waits before it asks all servers again which one is active."""


class Tries:
    """The tries of one call, as long as nothing of it was done. Such a call may be repeated, whatever it does.

    Args:
        channel: The channel of the call.
        timeout: How long the call may be repeated, in seconds.
    """

    def __init__(self, channel: FollowedChannel, timeout: float) -> None:
        self._channel = channel
        self._deadline = time.monotonic() + timeout
        self._left = channel.count
        self._waiting: FlussTieringError | None = None

    def pause_s(self, error: FlussTieringError) -> float:
        """Return how long to wait before the call is made again, in seconds.

        Raises:
            FlussTieringError: The error, or that of a server that waits to take over, if the call is not made again.
        """
        if isinstance(error, ThrottledError):
            # Callers that were refused together do not come back together.
            return self._within(error.retry_after_ms / 1000 * random.uniform(1, _SPREAD), error)  # noqa: S311
        if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            self._waiting = error
        if not self._channel.follow(error):
            raise error
        self._left -= 1
        if self._left:
            return 0.0
        if self._waiting is None:
            # None of the servers can be reached.
            raise error
        waiting, self._left, self._waiting = self._waiting, self._channel.count, None
        return self._within(_NO_SERVER_S, waiting)

    def _within(self, pause_s: float, error: FlussTieringError) -> float:
        if time.monotonic() + pause_s > self._deadline:
            raise error
        return pause_s
