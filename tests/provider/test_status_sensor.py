"""The sensor: what it waits for, and how it fails."""

from __future__ import annotations

import json
import threading
import time
from datetime import timedelta

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSensorTimeout, TaskDeferred

from airflow_provider_fluss.sensors.status import FlussTieringStatusSensor
from airflow_provider_fluss.triggers.status import FlussTieringStatusTrigger
from examples.ports import free_ports
from fluss_tiering.model.errors import FlussTieringError
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


def test_a_cancelled_attempt_fails_with_the_reason_and_no_retry(client, new_table, acquire, driver, wait):
    table = new_table()
    lease = acquire(table)
    driver.claim(lease, table)
    assert client.cancel_tiering(lease["lease_id"], lease["attempt_token"], "spark-submit was not found")
    with pytest.raises(AirflowFailException, match="spark-submit was not found"):
        wait(lease)


def test_a_newer_attempt_ends_the_older_ones_sensor(new_table, acquire, wait):  # L22
    table = new_table()
    older = acquire(table)
    newer = acquire(table)
    with pytest.raises(AirflowFailException, match=rf"newer attempt.*attempt {newer['attempt_token']}"):
        wait(older)


def test_a_missing_lease_says_what_is_expected(server, wait):
    with pytest.raises(AirflowFailException, match="has not succeeded"):
        wait(None)


def test_an_unavailable_server_is_tolerated_for_a_bounded_time(monkeypatch, wait):
    monkeypatch.setenv("AIRFLOW_CONN_AWAY", f"fluss://127.0.0.1:{free_ports(1)[0]}?timeout=0.3")
    lease = {
        "lease_id": "x",
        "attempt_token": 1,
        "tables": ["db.t"],
        "lease_duration_ms": 1000,
        "fluss_conn_id": "away",
    }
    started = time.monotonic()
    with pytest.raises(AirflowException, match="unavailable for") as failed:
        wait(lease, unavailable_timeout=timedelta(seconds=1.5))
    assert time.monotonic() - started > 1.5
    assert isinstance(failed.value.__cause__, FlussTieringError)


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


def test_what_is_decided_already_is_not_deferred(new_table, acquire, driver, wait):
    table = new_table()
    lease = acquire(table)
    driver.tier(lease, table)
    (ended,) = wait(lease, deferrable=True)
    assert ended["status"] == "Tiered"


@pytest.mark.parametrize(
    ("verdict", "error"),
    [
        ("failed", AirflowException),
        ("unreachable", AirflowException),
        ("cancelled", AirflowFailException),
        ("superseded", AirflowFailException),
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
