"""A `with` block closes its object once and lets errors through."""

from __future__ import annotations

import pytest

from fluss_tiering.model.closing import AsyncClosing, Closing


class Connection(Closing):
    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


class AsyncConnection(AsyncClosing):
    def __init__(self) -> None:
        self.closed = 0

    async def close(self) -> None:
        self.closed += 1


def test_a_block_gives_the_object_and_closes_it():
    made = Connection()
    with made as entered:
        assert entered is made
        assert made.closed == 0
    assert made.closed == 1


def test_an_error_closes_it_and_goes_on():
    made = Connection()
    with pytest.raises(ValueError, match="the error"), made:
        raise ValueError("the error")
    assert made.closed == 1


async def test_an_async_block_gives_the_object_and_closes_it():
    made = AsyncConnection()
    async with made as entered:
        assert entered is made
        assert made.closed == 0
    assert made.closed == 1


async def test_an_error_in_an_async_block_closes_it_and_goes_on():
    made = AsyncConnection()
    with pytest.raises(ValueError, match="the error"):
        async with made:
            raise ValueError("the error")
    assert made.closed == 1
