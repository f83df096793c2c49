"""The trigger of an asset's watcher, against a real server that goes away and comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from airflow.sdk import Asset, AssetWatcher
from airflow.sdk.exceptions import ErrorType
from airflow.sdk.execution_time import comms, task_runner
from airflow.sdk.execution_time import context as execution_context

from airflow_provider_fluss.triggers.tiered import FlussTableTieredTrigger
from engine_support import ServerProcess
from fluss_tiering.model.tiering import HeartbeatEntry, TieringStats
from waiting import WAIT_S


class Memory:
    """What Airflow keeps with an asset, as long as the test runs."""

    def __init__(self) -> None:
        self.values: dict[str, object] = {}
        self._by_name = {"orders": self}

    async def aget(self, key: str, default: object = None) -> object:
        return self.values.get(key, default)

    async def aset(self, key: str, value: object) -> None:
        self.values[key] = value


def make(table: str, memory: Memory | None = None) -> FlussTableTieredTrigger:
    path, arguments = FlussTableTieredTrigger(table, retry_seconds=0.2).serialize()
    assert path.endswith("FlussTableTieredTrigger")
    trigger = FlussTableTieredTrigger(**arguments)
    trigger.asset_state_store = memory
    return trigger


@asynccontextmanager
async def watching(trigger: FlussTableTieredTrigger) -> AsyncIterator[asyncio.Queue]:
    """The payloads of the trigger's events while it runs."""
    payloads: asyncio.Queue = asyncio.Queue()

    async def watch() -> None:
        async for event in trigger.run():
            await payloads.put(event.payload)

    task = asyncio.create_task(watch())
    try:
        yield payloads
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def next_of(payloads: asyncio.Queue) -> dict:
    return await asyncio.wait_for(payloads.get(), WAIT_S)


@pytest.fixture
def tier(client, acquire, driver) -> Callable[..., int]:
    """Runs a round of the table and returns its epoch."""

    def run(table: str, stats: TieringStats) -> int:
        claim = driver.claim(acquire(table), table)
        answer = client.heartbeat(finished=[HeartbeatEntry(claim.table_id, claim.tiering_epoch, stats=stats)])
        assert not answer.finished_errors
        return claim.tiering_epoch

    return run


async def known(memory: Memory) -> None:
    """Wait until the trigger has seen the table."""
    for _ in range(int(WAIT_S / 0.05)):
        if memory.values:
            return
        await asyncio.sleep(0.05)
    raise TimeoutError


async def test_each_round_with_new_rows_is_an_event_and_no_other(new_table, acquire, driver, tier):
    table, other, memory = new_table(), new_table(), Memory()
    tier(table, TieringStats(1, 100, 1, 10))
    async with watching(make(table, memory)) as payloads:
        await known(memory)
        tier(other, TieringStats(9, 900, 1, 99))
        driver.fail_round(acquire(table), table, "broken")
        tier(table, TieringStats())
        epoch = tier(table, TieringStats(3, 300, 2, 11))
        payload = await next_of(payloads)
        assert payload == {
            "table": table,
            "tiering_epoch": epoch,
            "lake_snapshot_id": 11,
            "rows": 3,
            "bytes": 300,
            "files": 2,
            "partitions": [],
            "rounds": 1,
        }
        tier(table, TieringStats(4, 400, 1, 12))
        assert (await next_of(payloads))["lake_snapshot_id"] == 12
        assert payloads.empty()


async def test_the_first_round_of_a_table_is_an_event(new_table, tier):
    table, memory = new_table(), Memory()
    async with watching(make(table, memory)) as payloads:
        await known(memory)
        tier(table, TieringStats(1, 100, 1, 10))
        assert (await next_of(payloads))["lake_snapshot_id"] == 10


async def test_a_round_while_the_triggerer_was_down_is_an_event_of_the_next_watch(new_table, tier):
    table, memory = new_table(), Memory()
    async with watching(make(table, memory)):
        await known(memory)
    tier(table, TieringStats(1, 100, 1, 10))
    async with watching(make(table, memory)) as payloads:
        assert (await next_of(payloads))["lake_snapshot_id"] == 10
    # What was an event already is none again.
    async with watching(make(table, memory)) as payloads:
        tier(table, TieringStats(1, 100, 1, 11))
        assert (await next_of(payloads))["lake_snapshot_id"] == 11


@pytest.mark.skipif(
    not hasattr(execution_context, "AssetStateStoreAccessors"), reason="this Airflow keeps nothing with assets"
)
async def test_assets_that_share_a_trigger_all_get_its_events(monkeypatch, new_table, tier):  # E10
    table, memory = new_table(), Memory()

    async def answer(message: comms.ToSupervisor) -> object:
        key = f"{message.name}/{message.key}"
        if isinstance(message, comms.SetAssetStateStoreByName):
            return await memory.aset(key, message.value)
        if (value := await memory.aget(key)) is None:
            return comms.ErrorResponse(error=ErrorType.ASSET_STORE_NOT_FOUND)
        return comms.AssetStateStoreResult(value=value)

    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", SimpleNamespace(asend=answer), raising=False)

    def shared() -> FlussTableTieredTrigger:
        trigger = make(table)
        inlets = [Asset("one"), Asset("two")]
        trigger.asset_state_store = execution_context.AssetStateStoreAccessors(inlets=inlets)
        return trigger

    async with watching(shared()):
        await known(memory)
    tier(table, TieringStats(1, 100, 1, 10))
    # An asset that was added since then remembers nothing.
    del memory.values[next(key for key in memory.values if key.startswith("two/"))]
    for snapshot in (10, 11):
        async with watching(shared()) as payloads:
            assert (await next_of(payloads))["lake_snapshot_id"] == snapshot
            tier(table, TieringStats(1, 100, 1, snapshot + 1))


async def test_empty_rounds_do_not_hide_the_rounds_with_rows_before_them(new_table, acquire, driver, tier):
    table, memory = new_table(), Memory()
    async with watching(make(table, memory)):
        await known(memory)
    tier(table, TieringStats(1, 100, 1, 10))
    newest = tier(table, TieringStats(2, 200, 1, 11))
    for _ in range(6):
        tier(table, TieringStats())
    driver.fail_round(acquire(table), table, "broken")
    async with watching(make(table, memory)) as payloads:
        payload = await next_of(payloads)
        assert (payload["tiering_epoch"], payload["lake_snapshot_id"], payload["rounds"]) == (newest, 11, 2)
        tier(table, TieringStats())
        tier(table, TieringStats(3, 300, 1, 12))
        payload = await next_of(payloads)
        assert (payload["lake_snapshot_id"], payload["rounds"]) == (12, 1)
        assert payloads.empty()


async def test_it_waits_for_a_table_and_for_a_server_that_are_not_there_yet(
    server: ServerProcess, client, new_table, tier
):
    table = new_table()
    tier(table, TieringStats(1, 100, 1, 10))
    memory = Memory()
    async with watching(make(table, memory)) as payloads, watching(make("db.later")) as missing:
        await known(memory)
        await asyncio.to_thread(server.stop)
        await asyncio.sleep(0.5)
        await asyncio.to_thread(server.start)
        epoch = await asyncio.to_thread(tier, table, TieringStats(2, 200, 1, 11))
        assert (await next_of(payloads))["tiering_epoch"] == epoch
        assert missing.empty()


def test_an_asset_takes_it_as_its_watcher():
    watcher = AssetWatcher(name="tiered", trigger=FlussTableTieredTrigger("shop.orders"))
    assert Asset(uri="fluss://h/shop/orders", watchers=[watcher]).watchers == [watcher]
