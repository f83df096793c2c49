"""The bytes of answers that clients have not taken yet, which are bounded for each caller and for the server."""

from __future__ import annotations

import asyncio
from typing import Final

from fluss_tiering.model.errors import ThrottledError

_RETRY_MS: Final = 1000


class UntakenAnswers:
    """Counts the bytes of answers that were made and that clients have not taken. It is used on the event loop only.

    Args:
        bytes_of_one: The largest number of bytes for one caller.
        bytes_of_all: The largest number of bytes for all callers together. A caller for whom none is counted gets some
            nevertheless, so that others cannot take them all.
        wait_s: How many seconds a call waits for others of its caller to be taken.
    """

    def __init__(self, bytes_of_one: int, bytes_of_all: int, wait_s: float) -> None:
        self._bytes_of_one = bytes_of_one
        self._bytes_of_all = bytes_of_all
        self._wait_s = wait_s
        self._held: dict[str, int] = {}
        self._total = 0
        self._waiting: set[asyncio.Future[None]] = set()

    @property
    def total(self) -> int:
        """The number of bytes that are counted for all callers."""
        return self._total

    async def reserve(self, name: str | None, size: int) -> None:
        """Count bytes for an answer that is about to be made, and wait until there is room for them.

        Args:
            name: The caller; None for one who is not limited alone.
            size: The number of bytes.

        Raises:
            ThrottledError: There was no room for too long.
        """
        if not self._fits(name, size):
            try:
                async with asyncio.timeout(self._wait_s):
                    await self._room(name, size)
            except TimeoutError:
                raise ThrottledError(
                    "the client takes the answers of its other calls too slowly, and max-untaken-bytes-per-identity "
                    "and max-untaken-bytes allow no more to wait: read them, or end those calls",
                    _RETRY_MS,
                ) from None
        self.count(name, size)

    def count(self, name: str | None, size: int) -> None:
        """Count bytes, or no longer count them if the number is below zero."""
        self._total += size
        if name is not None:
            held = self._held.get(name, 0) + size
            if held > 0:
                self._held[name] = held
            else:
                self._held.pop(name, None)
        if size < 0:
            for each in self._waiting:
                if not each.done():
                    each.set_result(None)

    async def _room(self, name: str | None, size: int) -> None:
        while not self._fits(name, size):
            changed = asyncio.get_running_loop().create_future()
            self._waiting.add(changed)
            try:
                await changed
            finally:
                self._waiting.discard(changed)

    def _fits(self, name: str | None, size: int) -> bool:
        held = 0 if name is None else self._held.get(name, 0)
        if held and held + size > self._bytes_of_one:
            return False
        return self._total + size <= self._bytes_of_all or (name is not None and not held) or not self._total
