"""The course of a server among several: it waits, takes over, leads, and ends when another server takes over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypeVar

import structlog

from fluss_tiering.model.errors import DataDirInUseError, ErrorCode, FlussTieringError
from fluss_tiering.server.failover.election import Election, Leader
from fluss_tiering.server.failover.leadership import Leadership

_RENEWALS_A_LEASE: Final = 4
_LOOKS_A_LEASE: Final = 8
_LOOKS_AT_OWN_ADDRESS: Final = 4
"""How many times as often a server looks whose own address is the leader's: no server serves, or one does already."""

_DATA_DIR_PAUSE_S: Final = 0.5
_RESIGN_S: Final = 1.0
"""A database that does not answer lets the leadership lapse instead."""

_PASSING: Final = (ErrorCode.UNAVAILABLE, ErrorCode.STORAGE)
"""The errors of a database that may mend by themselves."""

T = TypeVar("T")

logger = structlog.get_logger(__name__)


class Succession:
    """Waits until nobody leads, takes over, and renews the leadership until it is lost.

    Args:
        election: The leader's row.
        leadership: The leadership of this server.
        lease_s: The time for which the leadership is valid without a renewal, in seconds.
        address: "host:port" at which the other servers reach this server.
    """

    def __init__(self, election: Election, leadership: Leadership, lease_s: float, address: str) -> None:
        self._election = election
        self._leadership = leadership
        self._lease_s = lease_s
        self._address = address
        # A thread for this alone, because no call of the server may delay a renewal.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="leadership")

    async def prepare(self) -> None:
        """Make the leader's row available. Raises STORAGE or UNAVAILABLE."""
        await self._blocking(self._election.prepare)

    async def wait_for_leadership(
        self, seen: Callable[[Leader | None, FlussTieringError | None], Awaitable[None]]
    ) -> None:
        """Return once this server leads.

        Args:
            seen: Called after each look with the leader, or with the error why it is not known.

        Raises:
            FlussTieringError: INVALID_REQUEST or CORRUPT_DATA if this server cannot use the database.
        """
        while True:
            leader, problem = None, None
            try:
                leader = await self._blocking(self._election.leader)
                if leader is None and await self._blocking(self._leadership.acquire):
                    logger.info("leadership taken", generation=self._leadership.generation)
                    return
            except FlussTieringError as error:
                if error.code not in _PASSING:
                    raise
                problem = error
            await seen(leader, problem)
            looks = _LOOKS_A_LEASE
            if leader is not None and self.is_here(leader):
                looks *= _LOOKS_AT_OWN_ADDRESS
            await asyncio.sleep(self._lease_s / looks)

    def is_here(self, leader: Leader) -> bool:
        """Return whether a leader has the address of this server: it was this server, or was told the same address."""
        return leader.address == self._address

    async def keep_leadership(self, tried: Callable[[FlussTieringError | None], Awaitable[None]]) -> None:
        """Renew the leadership. Return once it lapsed or was given up, so that this server must stop leading.

        It has lapsed if a renewal failed and the time of the last one is over. A server that was suspended tries to
        renew it first, because perhaps no other server waits.

        Args:
            tried: Called after each try to renew it, with the error if the try failed.

        Raises:
            FlussTieringError: NOT_LEADER_OR_FOLLOWER if another server took over.
        """
        problem: FlussTieringError | None = None
        while problem is None or self._leadership.is_valid:
            # The pause ends when the leadership lapses.
            await asyncio.sleep(min(self._lease_s / _RENEWALS_A_LEASE, self._leadership.remaining_s))
            if problem is not None and not self._leadership.is_valid:
                break
            problem = await self._renew()
            if self._leadership.was_given_up:
                return
            await tried(problem)
        logger.error("leadership lapsed: this server stops leading", generation=self._leadership.generation)
        self._leadership.give_up(self._leadership.lapsed().message.removesuffix(": try again"))

    async def _renew(self) -> FlussTieringError | None:
        """Try to renew the leadership. Return the error of a try that failed; raise if another server took over."""
        try:
            # A try ends when the leadership lapses. Only the first one after that has a time of its own.
            async with asyncio.timeout(self._leadership.remaining_s or self._lease_s / _RENEWALS_A_LEASE):
                await self._blocking(self._leadership.renew)
        except TimeoutError:
            return FlussTieringError(ErrorCode.UNAVAILABLE, "the server's database gave no answer in time")
        except FlussTieringError as error:
            if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER and not self._leadership.was_given_up:
                raise
            return error
        return None

    async def take_over(self, open_components: Callable[[], Awaitable[T]], waiting: Callable[[str], None]) -> T:
        """Open the components of the active server. Wait while the server before still holds the data folder.

        A suspended server holds its folder until it continues, notices that it lost the leadership, and ends.

        Args:
            open_components: Opens the components.
            waiting: Called with the reason if this server waits for the data folder.
        """
        held: str | None = None
        while True:
            try:
                return await open_components()
            except DataDirInUseError as error:
                # The other server ends by itself, so that nobody has to do what the error says.
                reason = f"{error.held}, which ends once it finds that it leads no more"
                if reason != held:
                    held = reason
                    logger.warning("take-over waits for the data folder", reason=held)
                    waiting(held)
            await asyncio.sleep(_DATA_DIR_PAUSE_S)

    async def resign(self) -> None:
        """Let a server take over at once, this one too. The database may be away."""
        with suppress(FlussTieringError, TimeoutError):
            async with asyncio.timeout(_RESIGN_S):
                await self._blocking(self._leadership.resign)

    async def close(self) -> None:
        """Give up the leadership if this server leads, and close the connections to the database."""
        await self.resign()
        await self._blocking(self._election.close)
        self._thread.shutdown(wait=False)

    async def _blocking(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)
