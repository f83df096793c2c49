"""The sensor: what it waits for, and how it fails."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from datetime import timedelta
from types import SimpleNamespace

import pytest
from airflow.exceptions import AirflowRescheduleException
from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    TaskDeferred,
)
from airflow.providers.openlineage.extractors.manager import ExtractorManager
from airflow.sdk import DAG, AssetAlias, TaskInstanceState
from airflow.sdk.bases.operator import TriggerFailureReason
from airflow.sdk.execution_time import supervisor, task_runner
from airflow.sdk.execution_time.context import OutletEventAccessors
from provider_support import AWAY

from airflow_provider_fluss.sensors.status import FlussTieringStatusSensor
from airflow_provider_fluss.triggers.status import FlussTieringStatusTrigger
from examples.ports import free_ports
from waiting import WAIT_S


@pytest.fixture
def wait(context):
    def run(lease: object, **arguments: object) -> object:
        arguments = {"deferrable": False, "poke_interval": 0.1, "timeout": WAIT_S, **arguments}
        return FlussTieringStatusSensor(task_id="wait", lease=lease, **arguments).execute(context("wait"))

    return run


def test_it_waits_until_every_table_is_tiered(new_table, acquire, driver, wait):  # S25
    first, second = new_table(), new_table(primary_key=False)
    lease = acquire(first, second)
    driver.tier(lease, first)

    def finish_second_later() -> None:
        claim = driver.claim(lease, second)
        time.sleep(0.5)
        driver.finish(claim)

    application = threading.Thread(target=finish_second_later)
    application.start()
    rounds = wait(lease)
    application.join()
    assert [(each["table"], each["status"], each["rows"], each["lake_snapshot_id"]) for each in rounds] == [
        (first, "Tiered", 3, 42),
        (second, "Tiered", 3, 42),
    ]
    json.dumps(rounds)


def test_a_failed_table_is_named_with_its_last_error_once_all_have_ended(new_table, acquire, driver, wait):  # S10
    good, bad = new_table(), new_table()
    lease = acquire(good, bad)
    driver.fail_round(lease, bad, "the lake is on fire")
    claim = driver.claim(lease, good)
    with pytest.raises(AirflowSensorTimeout):
        wait(lease, timeout=1)
    driver.finish(claim)
    with pytest.raises(AirflowException) as failed:
        wait(lease)
    assert not isinstance(failed.value, AirflowFailException)
    assert bad in str(failed.value)
    assert "the lake is on fire" in str(failed.value)
    assert good not in str(failed.value)


def test_the_next_try_of_the_submit_task_is_waited_for_and_counts(new_table, acquire, driver, wait, task_states):  # D61
    table = new_table()
    lease = acquire(table)
    driver.fail_round(lease, table, "the JVM was killed")
    for state in (
        "running",
        "up_for_retry",
        "scheduled",
        "queued",
        "up_for_reschedule",
        "deferred",
        "restarting",
        None,
    ):
        task_states["submit"] = state
        with pytest.raises(AirflowSensorTimeout, match="the JVM was killed"):
            wait(lease, submit_task_id="submit", timeout=0)
    driver.tier(lease, table)
    (ended,) = wait(lease, submit_task_id="submit")
    assert ended["status"] == "Tiered"


@pytest.mark.parametrize("state", ["failed", "success"])
def test_once_the_submit_task_has_ended_a_failure_is_final(new_table, acquire, driver, wait, task_states, state):  # D61
    table = new_table()
    lease = acquire(table)
    driver.fail_round(lease, table, "disk full")
    task_states["submit"] = state
    with pytest.raises(AirflowFailException, match=rf"^The table failed to be tiered: {table} \(epoch 1\): disk full$"):
        wait(lease, submit_task_id="submit")


def test_a_sensor_follows_a_newer_attempt_of_its_lease(client, new_table, acquire, driver, wait):  # D60
    table = new_table()
    older = acquire(table)
    driver.fail_round(older, table, "disk full")
    newer = acquire(table)
    assert newer["attempt_token"] > older["attempt_token"]
    with pytest.raises(AirflowSensorTimeout):
        wait(older, timeout=0)
    driver.tier(newer, table)
    (ended,) = wait(older)
    assert ended["status"] == "Tiered"


def test_a_rescheduled_sensor_gives_its_worker_back(new_table, acquire, driver, wait):  # D68
    table = new_table()
    lease = acquire(table)
    with pytest.raises(AirflowRescheduleException):
        wait(lease, mode="reschedule", poke_interval=60)
    driver.tier(lease, table)
    (ended,) = wait(lease, mode="reschedule", poke_interval=60)
    assert ended["status"] == "Tiered"


def test_no_default_holds_a_slot(lease):  # E11
    def sensor(**arguments: object) -> FlussTieringStatusSensor:
        return FlussTieringStatusSensor(task_id="wait", lease=lease, **arguments)

    assert sensor().deferrable
    # Airflows without a triggerer have this mode.
    assert not sensor(mode="reschedule").deferrable
    assert sensor(mode="reschedule", deferrable=True).deferrable
    assert not sensor(deferrable=False).deferrable


# E12
@pytest.mark.parametrize("arguments", [{}, {"deferrable": False}, {"submit_task_id": None}], ids=str)
def test_it_makes_room_if_tasks_run_one_after_the_other(monkeypatch, new_table, acquire, driver, context, arguments):
    table = new_table()
    lease = acquire(table)
    alone = supervisor.InProcessSupervisorComms(supervisor=None)
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", alone, raising=False)
    sensor = FlussTieringStatusSensor(task_id="wait", lease=lease, **{"submit_task_id": "submit", **arguments})
    with pytest.raises(AirflowRescheduleException):
        sensor.execute(context("wait"))
    driver.tier(lease, table)
    (ended,) = sensor.execute(context("wait"))
    assert ended["status"] == "Tiered"


def test_a_rescheduled_sensor_keeps_its_worker_while_it_measures_time(new_table, acquire, wait, task_states):  # D68
    table = new_table()
    task_states["submit"] = "success"
    with pytest.raises(AirflowFailException, match=f"never claimed: {table}"):
        wait(acquire(table), mode="reschedule", submit_task_id="submit", claim_timeout=0.5)


def test_a_time_out_names_the_tables_and_what_they_wait_for(new_table, acquire, driver, context):  # D70
    first, second = new_table(), new_table()
    lease = acquire(first, second)
    driver.claim(lease, first)
    sensor = FlussTieringStatusSensor(task_id="wait", lease=lease, timeout=3)
    with pytest.raises(AirflowSensorTimeout) as timed_out:
        sensor.resume_execution("__fail__", {"error": TriggerFailureReason.TRIGGER_TIMEOUT}, context("wait"))
    assert str(timed_out.value) == (
        f"{first}, {second}: not all tables were tiered within 3 s; "
        f"0 of 2 done; Tiering: {first} (epoch 1); not yet claimed: {second}"
    )


@pytest.mark.parametrize(
    ("state", "cancelled"), [("failed", True), ("success", True), (None, False), ("running", False)]
)
def test_a_poking_sensor_that_is_marked_stops_the_rounds_and_one_that_is_cleared_does_not(  # D68
    client, new_table, acquire, driver, context, task_states, state, cancelled
):
    table = new_table()
    lease = acquire(table)
    driver.claim(lease, table)
    sensor = FlussTieringStatusSensor(task_id="wait", lease=lease, deferrable=False, timeout=0)
    with pytest.raises(AirflowSensorTimeout):
        sensor.execute(context("wait"))
    task_states["wait"] = state
    if cancelled:
        with pytest.raises(AirflowFailException) as stopped:
            sensor.on_kill()
        assert str(stopped.value) == f"Tiering of {table} was cancelled: task wait was marked {state}"
    else:
        sensor.on_kill()
    reason = client.lease_outcome(lease["lease_id"], lease["attempt_token"]).cancelled_reason
    assert reason == (f"task wait was marked {state}" if cancelled else None)


def test_a_sensor_that_is_marked_while_it_sleeps_ends_at_once_and_says_why(  # D68
    new_table, acquire, driver, context, task_states
):
    table = new_table()
    lease = acquire(table)
    driver.claim(lease, table)
    sensor = FlussTieringStatusSensor(task_id="wait", lease=lease, deferrable=False, poke_interval=WAIT_S)

    def mark() -> None:
        task_states["wait"] = "failed"
        os.kill(os.getpid(), signal.SIGUSR1)

    # As Airflow does it for SIGTERM.
    before = signal.signal(signal.SIGUSR1, lambda number, frame: sensor.on_kill())
    marking = threading.Timer(1, mark)
    marking.start()
    began = time.monotonic()
    try:
        with pytest.raises(AirflowFailException, match=rf"^Tiering of {table} was cancelled: task wait was marked fai"):
            sensor.execute(context("wait"))
    finally:
        marking.join()
        signal.signal(signal.SIGUSR1, before)
    assert time.monotonic() - began < WAIT_S


def test_a_missing_lease_says_what_is_expected(server, wait):
    with pytest.raises(AirflowFailException, match="has not succeeded"):
        wait(None)


def test_an_unavailable_server_is_tolerated_for_a_bounded_time(monkeypatch, wait):
    monkeypatch.setenv("AIRFLOW_CONN_AWAY", f"fluss://127.0.0.1:{free_ports(1)[0]}?timeout=0.3")
    started = time.monotonic()
    with pytest.raises(AirflowException, match="unavailable for") as failed:
        wait(AWAY, unavailable_timeout=timedelta(seconds=1.5))
    assert time.monotonic() - started > 1.5
    assert type(failed.value) is AirflowException


MODES = [{"deferrable": True}, {"mode": "poke"}, {"mode": "reschedule"}]


@pytest.mark.parametrize(
    ("mode", "lenient"), [*((mode, "soft_fail") for mode in MODES), (MODES[0], "never_fail"), (MODES[1], None)]
)
@pytest.mark.parametrize("failure", ["cancelled", "failed", "unreachable", "malformed"])
def test_a_lenient_sensor_skips_after_each_failure_in_each_mode(  # D70
    client, new_table, acquire, driver, wait, context, monkeypatch, mode, lenient, failure
):
    table = new_table()
    lease = acquire(table)
    match failure:
        case "cancelled":
            client.cancel_tiering(lease["lease_id"], lease["attempt_token"], "it was stopped")
        case "failed":
            driver.fail_round(lease, table, "disk full")
        case "unreachable":
            monkeypatch.setenv("AIRFLOW_CONN_AWAY", f"fluss://127.0.0.1:{free_ports(1)[0]}?timeout=0.3")
            lease["fluss_conn_id"] = "away"
        case "malformed":
            lease["attempt_token"] = -1
    # A person or another try mends some failures.
    error, why = {
        "cancelled": (AirflowFailException, "it was stopped"),
        "failed": (AirflowException, "disk full"),
        "unreachable": (AirflowException, "unavailable for"),
        "malformed": (AirflowFailException, "found attempt_token"),
    }[failure]
    arguments = {"timeout": WAIT_S, "poke_interval": 0.1, "unavailable_timeout": 0, "deferrable": False, **mode}
    arguments |= {lenient: True} if lenient else {}
    sensor = FlussTieringStatusSensor(task_id="wait", lease=lease, **arguments)
    with pytest.raises(AirflowException, match=why) as ended:
        run_to_its_end(sensor, context("wait"))
    assert type(ended.value) is (AirflowSkipException if lenient else error)


@pytest.mark.parametrize("mode", MODES[:2])
def test_a_lenient_sensor_skips_after_its_time_out_and_still_waits_before(new_table, acquire, wait, context, mode):
    lease = acquire(new_table())
    sensor = FlussTieringStatusSensor(
        task_id="wait", lease=lease, timeout=0, soft_fail=True, **{"deferrable": False, **mode}
    )
    with pytest.raises(AirflowSkipException):
        run_to_its_end(sensor, context("wait"))
    with pytest.raises(AirflowRescheduleException):
        wait(lease, mode="reschedule", poke_interval=60, soft_fail=True)


def run_to_its_end(sensor: FlussTieringStatusSensor, context: dict) -> None:
    """Run the sensor, and its trigger if it defers; a trigger without time is over at once."""
    try:
        sensor.execute(context)
    except TaskDeferred as deferred:
        if not sensor.timeout:
            sensor.resume_execution("__fail__", {"error": TriggerFailureReason.TRIGGER_TIMEOUT}, context)
        (event,) = asyncio.run(events_of(deferred.trigger))
        sensor.resume_execution(deferred.method_name, {"event": event}, context)


async def events_of(trigger: FlussTieringStatusTrigger) -> list[dict]:
    return [event.payload async for event in trigger.run()]


def test_it_defers_with_a_trigger_that_the_triggerer_can_make_again(new_table, acquire, wait):
    lease = acquire(new_table())
    with pytest.raises(TaskDeferred) as deferred:
        wait(lease, deferrable=True, poke_interval=timedelta(seconds=7), submit_task_id="submit", timeout=90)
    trigger = deferred.value.trigger
    path, arguments = trigger.serialize()
    assert path == f"{FlussTieringStatusTrigger.__module__}.{FlussTieringStatusTrigger.__qualname__}"
    assert json.loads(json.dumps(arguments)) == {
        "lease": lease,
        "poll_interval": 7.0,
        "unavailable_timeout": 300,
        "submit_task": {
            "dag_id": "dag",
            "run_id": trigger.submit_task["run_id"],
            "task_id": "submit",
            "map_index": -1,
            "claim_timeout": 600,
        },
    }
    assert FlussTieringStatusTrigger(**arguments).serialize() == (path, arguments)
    assert deferred.value.timeout == timedelta(seconds=90)
    assert hasattr(FlussTieringStatusSensor, deferred.value.method_name)


@pytest.mark.parametrize(
    ("verdict", "error"),
    [
        ("failed", AirflowException),
        ("unreachable", AirflowException),
        ("cancelled", AirflowFailException),
        ("not_submitted", AirflowFailException),
    ],
)
def test_what_the_trigger_found_fails_the_task_with_its_message(verdict, error):
    sensor = FlussTieringStatusSensor(task_id="wait", lease=None)
    with pytest.raises(AirflowException, match=r"^what happened$") as failed:
        sensor.execute_complete({}, {"verdict": verdict, "message": "what happened", "rounds": []})
    assert type(failed.value) is error


def test_the_rounds_that_the_trigger_found_are_returned():
    sensor = FlussTieringStatusSensor(task_id="wait", lease=None)
    event = {"verdict": "tiered", "message": "1 table Tiered", "rounds": [{"table": "db.t"}]}
    assert sensor.execute_complete({}, event) == [{"table": "db.t"}]


@pytest.mark.parametrize("deferred", [True, False])
def test_tables_with_new_rows_are_events_of_an_outlet(server, new_table, acquire, driver, context, deferred):
    table = new_table()
    lease = acquire(table)
    driver.tier(lease, table)
    found = {**context("wait"), "outlets": [AssetAlias("lake")], "outlet_events": OutletEventAccessors()}
    FlussTieringStatusSensor(task_id="wait", lease=lease, deferrable=deferred, poke_interval=0.1).execute(found)
    (event,) = found["outlet_events"][AssetAlias("lake")].asset_alias_events
    assert event.dest_asset_key.uri == f"fluss://127.0.0.1:{server.port}/{table.replace('.', '/')}"
    assert (event.extra["rows"], event.extra["lake_snapshot_id"]) == (3, 42)


def test_openlineage_learns_of_the_rounds(server, new_table, acquire, driver, context):
    table = new_table()
    lease = acquire(table)
    driver.tier(lease, table)
    with DAG("dag"):
        sensor = FlussTieringStatusSensor(task_id="wait", lease=lease)
    lineage = ExtractorManager().extract_metadata(
        dagrun=SimpleNamespace(run_id="run"),
        task=sensor,
        task_instance_state=TaskInstanceState.SUCCESS,
        task_instance=context("wait")["ti"],
    )
    assert [each.name for each in lineage.inputs] == [table]
    (output,) = lineage.outputs
    assert output.outputFacets["outputStatistics"].rowCount == 3
