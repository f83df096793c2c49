"""Work on many files of a store at once: an object store answers many requests in the time of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from fluss_tiering.model.location import Location

REMOTE_THREADS: Final = 32
"""How many requests a task sends to an object store at the same time."""

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


def map_on_store(location: str, function: Callable[[ItemT], ResultT], items: Sequence[ItemT]) -> list[ResultT]:
    """Return what a function that works on files of a store returns for each item, in the order of the items.

    On an object store it is called in several threads. All calls have ended when this function returns or raises.

    Args:
        location: A location in the store.
        items: What it is called with, once each.

    Raises:
        Exception: What the function raises for the first item for which it fails.
    """
    if Location.parse(location).is_local:
        return [function(item) for item in items]
    return in_threads(function, items)


def in_threads(function: Callable[[ItemT], ResultT], items: Sequence[ItemT]) -> list[ResultT]:
    """Return what a function returns for each item, as `map_on_store` does on an object store."""
    if len(items) < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(min(len(items), REMOTE_THREADS), thread_name_prefix="fluss-tiering-store") as threads:
        return list(threads.map(function, items))
