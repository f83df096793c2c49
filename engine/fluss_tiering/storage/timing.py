"""How readers measure the time that decoding takes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class DecodeTimer:
    """Adds up the time of the blocks that turn stored bytes into rows.

    A mapped file is read in these blocks too.

    Attributes:
        seconds: The time spent so far.
    """

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Add the block's time."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - start


class TimedDecoding:
    """The base of split readers: it measures the time that their decoding takes."""

    def __init__(self) -> None:
        self._decoding = DecodeTimer()

    @property
    def decode_seconds(self) -> float:
        """The time spent so far on turning stored bytes into rows; see `SplitReader`."""
        return self._decoding.seconds
