"""Waiting in tests for what comes true by itself, without depending on how fast it does."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

WAIT_S: Final = 120.0
"""An upper bound for a loaded machine; a test waits only as long as it must."""


def wait_until(
    condition: Callable[[], T],
    seconds: float = WAIT_S,
    *,
    every: float = 0.02,
    describe: Callable[[], object] = lambda: "",
) -> T:
    """Return what the condition returns once that is true, and fail the test if that does not happen in time.

    Args:
        condition: What is asked again and again.
        seconds: The upper bound.
        every: The seconds between two questions.
        describe: What to say of the state in which the condition does not hold.
    """
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < deadline, f"the condition did not hold within {seconds:g} s {describe()}"
        time.sleep(every)
    return result


def slowdown() -> float:
    """Return how many times longer than on an idle machine a program may take, for promises in seconds."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
