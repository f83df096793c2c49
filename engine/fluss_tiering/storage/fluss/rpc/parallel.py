"""Several calls to a cluster at once, since buckets lie on several servers and each call waits for one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypeVar

T = TypeVar("T")
ResultT = TypeVar("ResultT")

_THREADS: Final = 8


class ParallelCalls:
    """A pool of threads that make calls. Threads may share it."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="fluss-calls")

    def each(self, function: Callable[[T], ResultT], items: Iterable[T]) -> list[ResultT]:
        """Call a function for each item and return the results in the items' order.

        The first error is raised when all of the calls have ended.
        """
        items = list(items)
        if len(items) <= 1:
            return [function(item) for item in items]
        futures = [self._threads.submit(function, item) for item in items]
        errors = [error for future in futures if (error := future.exception()) is not None]
        if errors:
            raise errors[0]
        return [future.result() for future in futures]

    def later(self, function: Callable[[], object]) -> None:
        """Call a function soon without waiting for its result. Do nothing once the pool is closed."""
        with suppress(RuntimeError):
            self._threads.submit(function)

    def close(self) -> None:
        """End the threads when their calls have ended."""
        self._threads.shutdown()
