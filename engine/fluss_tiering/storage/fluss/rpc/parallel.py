"""Calls to a cluster beside each other: buckets lie on several servers, and each call waits for one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypeVar

T = TypeVar("T")
ResultT = TypeVar("ResultT")

_THREADS: Final = 8


class ParallelCalls:
    """Threads that wait for answers; safe to share."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="fluss-calls")

    def each(self, function: Callable[[T], ResultT], items: Iterable[T]) -> list[ResultT]:
        """What a function returns for each item, in their order; all of them end before the first error is raised."""
        items = list(items)
        if len(items) <= 1:
            return [function(item) for item in items]
        futures = [self._threads.submit(function, item) for item in items]
        errors = [error for future in futures if (error := future.exception()) is not None]
        if errors:
            raise errors[0]
        return [future.result() for future in futures]

    def later(self, function: Callable[[], object]) -> None:
        """Calls a function soon, and does not ask what came of it; once closed, never."""
        with suppress(RuntimeError):
            self._threads.submit(function)

    def close(self) -> None:
        """Ends the threads, after what they are doing."""
        self._threads.shutdown()
