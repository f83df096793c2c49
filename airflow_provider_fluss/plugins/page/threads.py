"""The threads that wait for tiering servers. A server that does not answer holds a few of them, and no more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar
from weakref import WeakValueDictionary

THREADS_OF_A_CONNECTION: Final = 4
_THREADS: Final = ThreadPoolExecutor(64, thread_name_prefix="lake-tiering")
"""None of them is one of those that the API server shares. A thread is started only when all others are taken."""

_Turns = WeakValueDictionary[tuple[asyncio.AbstractEventLoop, str], asyncio.Semaphore]
_TURNS: Final = _Turns()
"""Who may take a thread, for each connection that somebody waits for now."""

T = TypeVar("T")


async def in_thread(conn_id: str, work: Callable[[], T]) -> T:
    """Run what asks the server of a connection in a thread, as soon as the connection has one of its own left.

    Args:
        conn_id: The id of the connection as the address or the form has it.
        work: What is done.
    """
    loop = asyncio.get_running_loop()
    turns = _TURNS.get((loop, conn_id))
    if turns is None:
        turns = _TURNS[loop, conn_id] = asyncio.Semaphore(THREADS_OF_A_CONNECTION)
    async with turns:
        return await loop.run_in_executor(_THREADS, work)
