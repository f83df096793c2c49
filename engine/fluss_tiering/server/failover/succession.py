"""How a server among several on one PostgreSQL waits, takes over, leads, and ends when another one took over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypeVar

import structlog

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.failover.election import Election, Leader
from fluss_tiering.server.failover.leadership import Leadership

_RENEWALS_A_LEASE: Final = 4
_LOOKS_A_LEASE: Final = 8
_DATA_DIR_PAUSE_S: Final = 0.5

T = TypeVar("T")

logger = structlog.get_logger(__name__)


class Succession:
    """Waits until nobody leads, takes over, and renews until the leadership is lost."""

    def __init__(self, election: Election, leadership: Leadership, lease_s: float) -> None:
        self._election = election
        self._leadership = leadership
        self._lease_s = lease_s
        # Of its own: no call of the server may keep a renewal waiting.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="leadership")

    async def prepare(self) -> None:
        """Reaches the database for the first time. Raises STORAGE, UNAVAILABLE."""
        await self._blocking(self._election.prepare)

    async def wait(self, seen: Callable[[Leader | None, FlussTieringError | None], Awaitable[None]]) -> None:
        """Returns once this server leads; tells `seen` at each look who does, or why that is not known."""
        while True:
            leader, problem = None, None
            try:
                leader = await self._blocking(self._election.leader)
                if leader is None and await self._blocking(self._leadership.acquire):
                    logger.info("leadership taken", generation=self._leadership.generation)
                    return
            except FlussTieringError as error:
                problem = error
            await seen(leader, problem)
            await asyncio.sleep(self._lease_s / _LOOKS_A_LEASE)

    async def lead(self, renewed: Callable[[bool], Awaitable[None]]) -> None:
        """Renews the leadership, and tells `renewed` whether this server leads for sure, until it is lost.

        Raises:
            FlussTieringError: NOT_LEADER_OR_FOLLOWER, in the end.
        """
        while True:
            await asyncio.sleep(self._lease_s / _RENEWALS_A_LEASE)
            try:
                await self._blocking(self._leadership.renew)
            except FlussTieringError as error:
                if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    raise
                logger.warning("leadership not renewed", error=error.message)
            await renewed(self._leadership.is_valid)

    async def take_over(self, open_components: Callable[[], Awaitable[T]], waiting: Callable[[str], None]) -> T:
        """Opens the active server's parts; waits for a data folder that the one before still holds.

        A server that stands still keeps its folder until it goes on, finds that it lost the leadership and ends.
        """
        held: str | None = None
        while True:
            try:
                return await open_components()
            except FlussTieringError as error:
                if error.code is not ErrorCode.DATA_DIR_IN_USE:
                    raise
                if error.message != held:
                    held = error.message
                    logger.warning("take-over waits for the data folder", reason=held)
                    waiting(held)
            await asyncio.sleep(_DATA_DIR_PAUSE_S)

    async def end(self) -> None:
        """Resigns, where this server leads, and lets go of the database."""
        with suppress(FlussTieringError):
            await self._blocking(self._leadership.resign)
        await self._blocking(self._election.close)
        self._thread.shutdown(wait=False)

    async def _blocking(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)
