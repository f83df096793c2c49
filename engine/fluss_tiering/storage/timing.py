"""How readers say what decoding costs, apart from getting at the bytes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class DecodeTimer:
    """Adds up the time of the blocks that turn stored bytes into rows; those of a mapped file are read in them, too.

    Attributes:
        seconds: spent so far.
    """

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Counts the block's time."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - start
