"""The clock and the threads of an application, in one place, so that a simulation can hand in its own."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

ItemT = TypeVar("ItemT")


class Event(Protocol):
    """A flag that threads wait for: what `threading.Event` offers of it."""

    def is_set(self) -> bool:
        """Return whether the flag is set."""
        ...

    def set(self) -> None:
        """Set the flag and wake everybody who waits for it."""
        ...

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the flag is set or the time is over, and return whether it is set."""
        ...


class Thread(Protocol):
    """A thread of the application: what `threading.Thread` offers of it."""

    def start(self) -> None:
        """Start the thread."""
        ...

    def join(self, timeout: float | None = None) -> None:
        """Wait until the thread ends or the time is over."""
        ...


class Queue(Protocol[ItemT]):
    """A queue between threads: what `queue.SimpleQueue` offers of it."""

    def put(self, item: ItemT) -> None:
        """Append an item."""
        ...

    def get(self) -> ItemT:
        """Remove the first item and return it; wait for one while the queue is empty."""
        ...


def _daemon_thread(target: Callable[[], None], name: str) -> Thread:
    return threading.Thread(target=target, name=name, daemon=True)


@dataclass(frozen=True, slots=True)
class Runtime:
    """The clock and the threads that the rounds of an application use.

    Attributes:
        monotonic: Returns the seconds of a clock that never goes back.
        new_event: Makes an event that is not set.
        new_thread: Makes a thread for a function, with a name; it does not keep the process alive.
        new_queue: Makes an empty queue.
    """

    monotonic: Callable[[], float] = time.monotonic
    new_event: Callable[[], Event] = threading.Event
    new_thread: Callable[[Callable[[], None], str], Thread] = _daemon_thread
    new_queue: Callable[[], Queue[Any]] = queue.SimpleQueue


SYSTEM: Final = Runtime()
"""The machine's own clock and threads."""
