"""Waiting in tests for what comes true by itself, without depending on how fast it does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

WAIT_S: Final = 120.0
"""An upper bound for a loaded machine; a test waits only as long as it must."""


def wait_until(condition: Callable[[], object], seconds: float = WAIT_S) -> None:
    """Return once the condition holds, and fail the test if it does not hold in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"the condition did not hold within {seconds:g} s"
        time.sleep(0.02)
