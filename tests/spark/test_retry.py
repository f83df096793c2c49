"""What a call that is tried again says while it does not work."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.spark.retry import Retry
from fluss_tiering.spark.runtime import SYSTEM


class Pauses:
    """An event that is never set. Each pause takes so many seconds of the clock."""

    def __init__(self, seconds: float) -> None:
        self.now = 0.0
        self._seconds = seconds

    def is_set(self) -> bool:
        return False

    def wait(self, seconds: float | None = None) -> bool:
        del seconds
        self.now += self._seconds
        return False


@pytest.mark.parametrize(("pause", "told"), [(4.0, 3), (61.0, 40), (0.5, 1)])
def test_a_failure_is_told_at_once_and_once_a_minute(pause: float, told: int, caplog: pytest.LogCaptureFixture) -> None:
    pauses = Pauses(pause)
    left = iter(range(40))

    def call() -> str:
        if next(left, None) is None:
            return "done"
        raise FlussTieringError(ErrorCode.UNAVAILABLE, "connection refused")

    caplog.set_level(logging.WARNING)
    runtime = replace(SYSTEM, monotonic=lambda: pauses.now)
    assert Retry(pauses, what="the stream broke", runtime=runtime)(call) == "done"
    assert caplog.messages == ["the stream broke: trying again: connection refused"] * told
