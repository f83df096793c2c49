"""Runs blocking code for the event loop: the managers in the control thread, the storage in a pool of threads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, Final, ParamSpec, TypeVar

from fluss_tiering.server.core.turns import TurnWatch

P = ParamSpec("P")
T = TypeVar("T")
V = TypeVar("V")

_STORAGE_THREADS: Final = 16
"""More than processors, because calls wait for disks more than they compute."""


class ServerThreads:
    """The server's threads.

    Everything that reads or changes the managers runs in the one control thread, one call after the other, so that the
    managers need no locks. A call that was begun runs to its end, whether or not its client still waits for it.

    Attributes:
        turns: How long calls held the control thread.
        before_turn: Called in the control thread before each call.
    """

    def __init__(self) -> None:
        self.turns = TurnWatch()
        self.before_turn: Callable[[], object] = lambda: None
        self._control = ThreadPoolExecutor(1, thread_name_prefix="control")
        self._storage = ThreadPoolExecutor(_STORAGE_THREADS, thread_name_prefix="storage")

    async def control(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function in the control thread, and return its result."""

        def take_turn() -> T:
            with self.turns.turn(getattr(function, "__qualname__", repr(function))):
                self.before_turn()
                return function(*args, **kwargs)

        return await _run(self._control, take_turn)

    async def storage(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function that calls the storage, and return its result."""
        return await _run(self._storage, lambda: function(*args, **kwargs))

    async def storage_each(self, function: Callable[[V], T], values: Iterable[V]) -> list[T]:
        """Run a function that calls the storage with several values at the same time, and return its results."""
        return list(await asyncio.gather(*(self.storage(function, value) for value in values)))

    async def to_its_end(self, steps: Coroutine[Any, Any, T]) -> T:
        """Run steps in these threads to their end, even if the client goes away in between."""
        return await asyncio.shield(asyncio.ensure_future(steps))

    async def iterate(self, open_iterator: Callable[[], Iterator[T]]) -> AsyncIterator[T]:
        """Yield the items of an iterator over the storage.

        The iterator is closed when the reader goes away, but never while it runs.

        Args:
            open_iterator: Opens the iterator; it is called in a thread of the storage.
        """
        iterator = await self.storage(open_iterator)
        try:
            while True:
                step = asyncio.ensure_future(self.storage(_next, iterator))
                try:
                    item = await asyncio.shield(step)
                except asyncio.CancelledError:
                    await asyncio.wait([step])
                    raise
                if item is None:
                    return
                yield item
        finally:
            if isinstance(iterator, Generator):
                iterator.close()

    def close(self) -> None:
        """Wait for the calls that were begun, and end the threads."""
        self._storage.shutdown()
        self._control.shutdown()


async def _run(executor: Executor, function: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(executor, function)


def _next(iterator: Iterator[T]) -> T | None:
    return next(iterator, None)
