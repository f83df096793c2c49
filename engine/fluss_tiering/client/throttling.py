"""Waits of a client whose calls the server refuses because there are too many."""

from __future__ import annotations

import random
import time
from typing import Final

from fluss_tiering.model.errors import ThrottledError

_SPREAD: Final = 1.5


class Throttling:
    """The waits of one call. A call that was refused in this way was not begun, so that each call may be repeated.

    Args:
        timeout: How long the call may be repeated, in seconds.
    """

    def __init__(self, timeout: float) -> None:
        self._deadline = time.monotonic() + timeout

    def pause_s(self, error: ThrottledError) -> float:
        """Return how long to wait before the call is made again, in seconds.

        Raises:
            ThrottledError: The error, if the call would have to wait for too long.
        """
        # Callers that were refused together do not come back together.
        pause = error.retry_after_ms / 1000 * random.uniform(1, _SPREAD)  # noqa: S311 - no secret
        if time.monotonic() + pause > self._deadline:
            raise error
        return pause
