"""A time limit for code that waits for something that gives no answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def time_limit(seconds: float, end: Callable[[], object]) -> Iterator[None]:
    """Call a function in a thread of its own if the block takes longer.

    Args:
        seconds: The time limit in seconds.
        end: Makes what waits in the block fail, for example by closing its connection.
    """
    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
