"""A connection that is not defined, and one that cannot be looked up while Airflow's API server is away."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import provider_support
import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import ErrorResponse
from provider_support import is_shown_alone

from airflow_provider_fluss.hooks.fluss import FlussHook
from airflow_provider_fluss.triggers import tiered
from airflow_provider_fluss.triggers.status import FlussTieringStatusTrigger
from airflow_provider_fluss.triggers.tiered import FlussTableTieredTrigger
from waiting import WAIT_S

AWAY = ErrorResponse(error=ErrorType.API_SERVER_ERROR)
NOT_FOUND = ErrorResponse(error=ErrorType.CONNECTION_NOT_FOUND)


class Supervisor:
    """Answers a task as its supervisor does: some errors are answers, and some are raised."""

    def __init__(self, answer: ErrorResponse | Exception) -> None:
        self._answer = answer

    def send(self, message: object) -> ErrorResponse:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


@pytest.fixture
def supervisor(monkeypatch):
    def answers(answer: ErrorResponse | Exception) -> None:
        monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", Supervisor(answer), raising=False)

    return answers


@pytest.mark.parametrize("answer", [AWAY, AirflowRuntimeError(AWAY), EOFError("the supervisor is gone")])
def test_an_outage_of_the_api_server_is_tried_again(supervisor, answer):  # D61, D67
    supervisor(answer)
    with pytest.raises(AirflowException, match=r"^Connection 'other' cannot be looked up at present: ") as raised:
        FlussHook("other").get_client()
    assert not isinstance(raised.value, AirflowFailException)


@pytest.mark.parametrize("answer", [NOT_FOUND, AirflowRuntimeError(NOT_FOUND)])
def test_a_connection_that_is_not_defined_is_not_tried_again(supervisor, answer):  # D67
    supervisor(answer)
    with pytest.raises(AirflowFailException, match=r"^Connection 'other' is not defined: ") as raised:
        FlussHook("other").get_client()
    assert is_shown_alone(raised.value)


LEASE = {**provider_support.AWAY, "fluss_conn_id": "other"}


class OnceAway(Supervisor):
    """Gives this answer to one question. After it, the connection can be looked up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, connection: str, answer: ErrorResponse = AWAY) -> None:
        super().__init__(answer)
        self._connect = lambda: monkeypatch.setenv("AIRFLOW_CONN_OTHER", connection)
        self.asked = 0

    def send(self, message: object) -> ErrorResponse:
        self.asked += 1
        self._connect()
        return super().send(message)


async def test_a_trigger_that_starts_while_the_api_server_is_away_tries_again(  # D61
    monkeypatch, server, client, new_table, acquire
):
    lease = acquire(new_table())
    client.cancel_tiering(lease["lease_id"], lease["attempt_token"], "seen after the outage")
    away = OnceAway(monkeypatch, f"fluss://127.0.0.1:{server.port}")
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", away, raising=False)
    trigger = FlussTieringStatusTrigger({**lease, "fluss_conn_id": "other"}, 0.1, unavailable_timeout=60)
    (event,) = [each async for each in trigger.run()]
    assert away.asked == 1
    assert "seen after the outage" in event.payload["message"]


async def test_a_trigger_whose_api_server_stays_away_says_so_with_its_tables(supervisor):  # D61
    supervisor(AWAY)
    (event,) = [each async for each in FlussTieringStatusTrigger(LEASE, 0.1, unavailable_timeout=0.3).run()]
    assert event.payload["verdict"] == "unreachable"
    assert event.payload["message"] == (
        "Connection 'other' cannot be looked up at present: Airflow's API server does not answer; "
        "these tables wait for it: db.t"
    )


async def test_a_trigger_without_its_connection_ends_at_once(supervisor):  # D67
    supervisor(NOT_FOUND)
    with pytest.raises(AirflowFailException, match=r"^Connection 'other' is not defined: "):
        [each async for each in FlussTieringStatusTrigger(LEASE, 0.1, unavailable_timeout=60).run()]


@pytest.mark.parametrize("answer", [AWAY, NOT_FOUND])
async def test_a_watch_begins_once_its_connection_can_be_looked_up(  # D61
    monkeypatch, server, new_table, acquire, driver, answer
):
    table = new_table()
    lease = acquire(table)
    away = OnceAway(monkeypatch, f"fluss://127.0.0.1:{server.port}", answer)
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", away, raising=False)
    watch = FlussTableTieredTrigger(table, "other", retry_seconds=0.1)
    events = watch.run()
    first = asyncio.ensure_future(anext(events))
    async with asyncio.timeout(WAIT_S):
        while not first.done():
            driver.tier(lease, table)
            await asyncio.wait([first], timeout=0.5)
    event = await first
    assert event.payload["table"] == table
    await events.aclose()


UNDEFINED = None


@pytest.mark.parametrize(
    ("connection", "table", "wrong"),
    [
        (UNDEFINED, "db.t", "is not defined"),
        ("http://127.0.0.1", "db.t", "is of the type 'http'"),
        ("fluss://", "db.t", "has no host"),
        ('{"conn_type": "fluss", "host": "http://h"}', "db.t", "has host"),
        ("{", "db.t", "'other'"),
        ("fluss://h", "no_dot", "is not a table path"),
    ],
)
async def test_a_watch_that_cannot_begin_warns_once_and_tries_again(monkeypatch, supervisor, connection, table, wrong):
    supervisor(NOT_FOUND)
    if connection is not UNDEFINED:
        monkeypatch.setenv("AIRFLOW_CONN_OTHER", connection)
    pauses, warnings = [], []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 8:
            raise asyncio.CancelledError

    watch = FlussTableTieredTrigger(table, "other", retry_seconds=2)
    monkeypatch.setattr(tiered.asyncio, "sleep", sleep)
    monkeypatch.setattr(watch, "_log", SimpleNamespace(warning=lambda text, *values: warnings.append(text % values)))
    with pytest.raises(asyncio.CancelledError):
        await anext(watch.run())
    assert pauses == [2, 4, 8, 16, 32, 60, 60, 60]
    (warning,) = warnings
    assert warning.startswith(f"Table {table} cannot be watched, trying again: ")
    assert wrong in warning
