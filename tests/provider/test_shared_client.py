"""Triggers of one event loop share a client of the tiering server."""

from __future__ import annotations

import asyncio

import grpc.aio
import pytest
from provider_support import Server

from airflow_provider_fluss.hooks.fluss import FlussHook
from airflow_provider_fluss.triggers.status import FlussTieringStatusTrigger
from fluss_tiering.client import TieringClient
from fluss_tiering.model.table import TablePath
from waiting import WAIT_S


@pytest.fixture
def channels(monkeypatch: pytest.MonkeyPatch) -> list[grpc.aio.Channel]:
    """The channels that are opened."""
    opened = []
    insecure_channel = grpc.aio.insecure_channel

    def opening(*args: object) -> grpc.aio.Channel:
        opened.append(insecure_channel(*args))
        return opened[-1]

    monkeypatch.setattr(grpc.aio, "insecure_channel", opening)
    return opened


async def test_many_triggers_wait_over_one_channel(client: TieringClient, new_table, acquire, driver, channels):
    async def fire(lease: dict) -> dict:
        (event,) = [each async for each in FlussTieringStatusTrigger(lease, 0.1, 30).run()]
        return event.payload

    leases = {table: acquire(table) for table in (new_table(), new_table(), new_table())}
    waiting = [asyncio.create_task(fire(lease)) for lease in leases.values()]
    await asyncio.sleep(0.3)
    # One that is cancelled, as a deferred task is when a person clears it, takes nothing away from the others.
    waiting[0].cancel()
    for table in list(leases)[1:]:
        driver.tier(leases[table], table)
    events = await asyncio.wait_for(asyncio.gather(*waiting[1:]), WAIT_S)
    assert [each["verdict"] for each in events] == ["tiered", "tiered"]
    assert len(channels) == 1


async def test_the_last_user_closes_the_client(server: Server, new_table, channels):
    table = TablePath.parse(new_table())
    hook = FlussHook()
    async with hook.share_async_client() as first:
        async with hook.share_async_client() as second:
            assert second is first
        assert await first.list_tiering_statuses(table)
    assert channels[0].get_state() is grpc.ChannelConnectivity.SHUTDOWN
    async with hook.share_async_client() as third:
        assert await third.list_tiering_statuses(table)
    assert len(channels) == 2


async def test_other_deadlines_and_loops_have_other_clients(server: Server, channels):
    def in_a_loop_of_its_own() -> int:
        async def use() -> int:
            async with FlussHook().share_async_client() as client:
                return id(client)

        return asyncio.run(use())

    async with FlussHook().share_async_client() as client, FlussHook(timeout=1).share_async_client() as hurried:
        assert hurried is not client
        assert await asyncio.to_thread(in_a_loop_of_its_own) not in {id(client), id(hurried)}
    assert len(channels) == 3
