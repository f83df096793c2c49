"""The submit, with a spark-submit that records how it was called; tests/system submits to Spark itself."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException
from provider_support import Driver, dead_driver

from airflow_provider_fluss.operators.lease import FlussReleaseKvSnapshotLeaseOperator
from airflow_provider_fluss.operators.spark_submit import spark_cause
from airflow_provider_fluss.outcome import Verdict, judge
from airflow_provider_fluss.sensors.status import FlussTieringStatusSensor
from cases import cases
from engine_support import tier
from fluss_tiering.client import TieringClient
from fluss_tiering.model.table import TablePath, WriteKind
from fluss_tiering.model.tiering import TieringState
from fluss_tiering.spark import submit
from waiting import wait_until

AWAY = {"conn_type": "fluss", "host": "127.0.0.1", "port": 1, "extra": {"timeout": 1}}
"""A connection to a server that does not run."""


def test_it_submits_the_application_with_the_lease(server, spark, make, context, lease):
    called = spark("")
    make(lease).execute(context("submit"))
    application = called().index(str(submit.APPLICATION))
    assert called()[:2] == ["--master", "local[2]"]
    assert "spark.log.level=WARN" in called()
    assert called()[application + 1 :] == [
        *("--server", f"127.0.0.1:{server.port}"),
        *("--lease-id", lease["lease_id"]),
        *("--attempt-token", str(lease["attempt_token"])),
        *("--lease-duration-ms", str(lease["lease_duration_ms"])),
        "--outcome-in-status",
        *lease["tables"],
    ]


@cases("wrong", [{"attempt_token": -1}, {"tables": ["nodot"]}, {"lease_duration_ms": -1}, None])
def test_nothing_is_submitted_without_a_lease_or_under_a_malformed_one(spark, make, context, lease, wrong):
    called = spark("")
    told = f"found {next(iter(wrong))}" if wrong else "no lease to tier under"
    with pytest.raises(AirflowFailException, match=told):
        make({**lease, **wrong} if wrong else None).execute(context("submit"))
    with pytest.raises(FileNotFoundError):
        called()


def test_tables_without_new_rows_are_not_given_to_spark(client, spark, make, context, new_table, acquire):  # D27
    unchanged, changed, running, new = (new_table() for _ in range(4))
    for table in (unchanged, changed, running):
        put_in_lake(client, TablePath.parse(table))
    rows = pa.table(
        {"id": [9], "name": ["new"]}, schema=pa.schema([pa.field("id", pa.int64(), False), ("name", "str")])
    )
    assert list(client.write_rows(TablePath.parse(changed), WriteKind.UPSERT, [rows])) == [1]
    lease = acquire(unchanged, changed, running, new)
    (lost,) = client.claim_tables([TablePath.parse(running)], lease["lease_id"], lease["attempt_token"], dead_driver())
    called = spark("")
    make(lease).execute(context("submit"))
    assert called()[-4:] == ["--outcome-in-status", changed, running, new]
    rounds = {each.path: each for each in client.lease_outcome(lease["lease_id"], lease["attempt_token"]).rounds}
    assert rounds[TablePath.parse(unchanged)].state is TieringState.TIERED
    assert rounds[TablePath.parse(running)].tiering_epoch == lost.tiering_epoch
    assert rounds.keys() == {TablePath.parse(unchanged), TablePath.parse(running)}


def test_a_lease_without_new_rows_starts_no_spark_and_its_sensor_is_content(  # D27
    client, spark, make, context, new_table, acquire
):
    table = new_table()
    put_in_lake(client, TablePath.parse(table))
    lease = acquire(table)
    called = spark("")
    for _ in range(2):  # also in a second try of the task
        make(lease).execute(context("submit"))
    with pytest.raises(FileNotFoundError):
        called()
    outcome = client.lease_outcome(lease["lease_id"], lease["attempt_token"])
    assert judge(outcome, lease["tables"], lease["attempt_token"]).verdict is Verdict.TIERED


# D27
def test_who_cannot_tell_what_is_new_gives_all_to_spark(client, spark, make, context, new_table, acquire, monkeypatch):
    table = new_table()
    put_in_lake(client, TablePath.parse(table))
    lease = acquire(table)
    monkeypatch.setenv("AIRFLOW_CONN_FLUSS_DEFAULT", json.dumps(AWAY))
    called = spark("")
    make(lease).execute(context("submit"))
    assert called()[-1] == table


def put_in_lake(client: TieringClient, path: TablePath) -> None:
    """Register a lake snapshot with the whole log, as a round does."""
    (table,) = client.get_tables([path])
    tier(client, table)


def test_a_failure_without_a_try_left_is_passed_on_to_who_waits(client, spark, make, context, driver, lease):
    claim = driver.claim(lease, lease["tables"][0])
    spark("print('java.net.ConnectException: password=hunter2 refused'); print('at java.net'); sys.exit(1)")
    with pytest.raises(AirflowException, match="ConnectException"):
        make(lease, retries=2).execute(context("submit", try_number=3, max_tries=2))
    outcome = client.lease_outcome(lease["lease_id"], lease["attempt_token"])
    assert (outcome.cancelled_reason or "").startswith("task submit failed: java.net.ConnectException: ")
    assert "hunter2" not in (outcome.cancelled_reason or "")
    assert [(each.table_id, each.state) for each in outcome.rounds] == [(claim.table_id, TieringState.FAILED)]


def test_a_failure_with_tries_left_leaves_the_attempt_to_the_next(client, spark, make, context, driver, lease):
    driver.claim(lease, lease["tables"][0])
    spark("sys.exit(1)")
    with pytest.raises(AirflowException) as failed:
        make(lease, retries=2).execute(context("submit", try_number=2, max_tries=2))
    assert not isinstance(failed.value, AirflowFailException)
    outcome = client.lease_outcome(lease["lease_id"], lease["attempt_token"])
    assert outcome.cancelled_reason is None
    assert [each.state for each in outcome.rounds] == [TieringState.TIERING]


def test_a_table_that_failed_fails_the_task_with_the_words_of_the_sensor(  # D62
    spark, make, context, driver, lease, task_states
):
    good, bad = lease["tables"]
    driver.tier(lease, good)
    driver.fail_round(lease, bad, "disk full")
    spark("")
    with pytest.raises(AirflowFailException) as failed:
        make(lease).execute(context("submit"))
    assert str(failed.value) == f"1 of 2 tables failed to be tiered: {bad} (epoch 1): disk full"
    task_states["submit"] = "failed"
    sensor = FlussTieringStatusSensor(task_id="wait", lease=lease, submit_task_id="submit")
    with pytest.raises(AirflowFailException) as waited:
        sensor.execute(context("wait"))
    assert str(waited.value) == str(failed.value)


def test_a_task_whose_tables_are_tiered_is_green_although_spark_failed(spark, make, context, driver, lease):  # D61
    first, second = lease["tables"]
    driver.tier(lease, first)
    tier = f"""
from fluss_tiering.client import TieringClient
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import HeartbeatEntry
arguments = dict(zip(sys.argv[1:], sys.argv[2:]))
with TieringClient(arguments["--server"]) as client:
    paths = [TablePath.parse({second!r})]
    (claim,) = client.claim_tables(paths, arguments["--lease-id"], int(arguments["--attempt-token"]), "driver")
    client.heartbeat(finished=[HeartbeatEntry(claim.table_id, claim.tiering_epoch)])
sys.exit(137)
"""
    called = spark(tier)
    make(lease).execute(context("submit"))
    # What was tiered in an earlier try is not given to Spark again.
    assert called()[-2:] == ["--outcome-in-status", second]
    make(lease).execute(context("submit"))


@pytest.mark.parametrize("exit_code", [0, 1])
def test_a_task_whose_attempt_was_cancelled_fails_with_the_reason(  # D66
    client, spark, make, context, lease, tmp_path, exit_code
):
    cancel = f"""
from fluss_tiering.client import TieringClient
arguments = dict(zip(sys.argv[1:], sys.argv[2:]))
with TieringClient(arguments["--server"]) as client:
    client.cancel_tiering(arguments["--lease-id"], int(arguments["--attempt-token"]), "task wait was marked failed")
sys.exit({exit_code})
"""
    spark(cancel)
    for _ in range(2):  # also if it was cancelled before the task began
        with pytest.raises(AirflowFailException, match=r"^Tiering of .* was cancelled: task wait was marked failed$"):
            make(lease, retries=2).execute(context("submit", try_number=1, max_tries=2))
        assert (tmp_path / "calls.json").exists()


def test_a_cleared_task_begins_a_new_attempt_if_its_own_is_over(  # D62
    client, spark, make, context, driver, lease, task_states
):
    good, bad = lease["tables"]
    driver.tier(lease, good)
    client.cancel_tiering(lease["lease_id"], lease["attempt_token"], "task submit failed: disk full")
    client.drop_lease(lease["lease_id"], attempt_token=lease["attempt_token"])
    called = spark("")
    operator = make(lease, retries=2)
    operator.execute(context("submit", try_number=4, max_tries=5))
    token = int(called()[called().index("--attempt-token") + 1])
    assert token > lease["attempt_token"]
    assert called()[-2:] == ["--outcome-in-status", bad]
    assert client.list_leases(lease["lease_id"]) == []
    assert operator.lease == {**lease, "attempt_token": token}
    # The sensor that was cleared with it has the lease of the acquire task, which was not.
    driver.tier(operator.lease, bad)
    task_states["submit"] = "success"
    sensor = FlussTieringStatusSensor(task_id="wait", lease=lease, submit_task_id="submit", deferrable=False)
    assert [each["table"] for each in sensor.execute(context("wait"))] == [good, bad]


def test_a_task_of_an_older_attempt_stops(client, spark, make, context, lease):  # L22
    newest = client.acquire_lease(lease["lease_id"], 60_000, {}, allow_empty=True).attempt_token
    spark("")
    with pytest.raises(AirflowFailException, match=rf"took over \(attempt token {newest}\)"):
        make(lease).execute(context("submit"))


@pytest.mark.parametrize(
    ("try_number", "state", "reason"),
    [
        (1, "running", None),
        (1, "restarting", None),
        (3, "running", "task submit was killed"),
        # A person cleared it, so a try follows.
        (3, "restarting", None),
        (1, "failed", "task submit was marked failed"),
        (1, "success", "task submit was marked success"),
    ],
)
def test_a_kill_ends_the_program_and_the_attempt_if_no_try_follows(  # D62
    client, spark, make, context, lease, tmp_path, task_states, try_number, state, reason
):
    spark("print('WARNING stopping the round: an Error of its own', flush=True); time.sleep(60)")
    operator = make(lease, retries=2)
    with ThreadPoolExecutor(1) as pool:
        task = pool.submit(operator.execute, context("submit", try_number=try_number, max_tries=2))
        wait_until((tmp_path / "calls.json").exists)
        task_states["submit"] = state
        operator.on_kill()
        error = task.exception(30)
    assert isinstance(error, AirflowException)
    how = f"was cancelled: {reason}" if state in ("failed", "success") else "was stopped: task submit was killed"
    # What Spark said while it ended is no cause.
    assert str(error) == f"Tiering of {', '.join(lease['tables'])} {how}"
    assert client.lease_outcome(lease["lease_id"], lease["attempt_token"]).cancelled_reason == reason


WARNED = "2026-11-22 23:02:40,480 WARNING fluss_tiering.spark.round.keepalive: stopping the round: Error of the server"


@pytest.mark.parametrize(
    ("output", "cause"),
    [
        ([WARNED], "stopping the round: Error of the server"),
        ([WARNED, "java.io.IOException: no space"], "java.io.IOException: no space"),
        ([WARNED, "it is over"], "it is over"),
        ([WARNED, "ERROR fluss_tiering: db.t: no space"], "db.t: no space"),
    ],
)
def test_a_line_of_a_log_is_no_cause(output, cause):
    assert spark_cause(AirflowException("\n".join(["Cannot execute: spark-submit", *output]))) == cause


@pytest.mark.parametrize("wrong", ["dropped", "switched off"])
def test_a_table_that_was_dropped_after_the_acquire_is_not_tried_again(
    client, spark, make, context, new_table, acquire, driver, wrong
):
    good, bad = new_table(), new_table()
    lease = acquire(good, bad)
    spark("sys.exit(1)")
    if wrong == "dropped":
        client.drop_table(TablePath.parse(bad), drop_untiered=True)
    else:
        client.alter_table(TablePath.parse(bad), {"table.datalake.enabled": "false"})
    # The next try can still tier the other one.
    with pytest.raises(AirflowException) as failed:
        make(lease, retries=2).execute(context("submit", try_number=1, max_tries=2))
    assert not isinstance(failed.value, AirflowFailException)
    driver.tier(lease, good)
    with pytest.raises(AirflowFailException, match=rf"no retry can: .*{bad}"):
        make(lease, retries=2).execute(context("submit", try_number=2, max_tries=2))


def test_a_worker_without_spark_is_not_tried_again(spark, make, context, lease, monkeypatch, tmp_path):
    spark("")
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(AirflowFailException, match=r"^spark-submit is not on the PATH of this worker"):
        make(lease).execute(context("submit"))


def test_a_wrong_java_is_not_tried_again(spark, make, context, lease):
    spark("print('java.lang.UnsupportedClassVersionError: org/apache/spark has been compiled'); sys.exit(1)")
    with pytest.raises(AirflowFailException, match=r"^Spark needs Java 17 or newer on this worker: set JAVA_HOME"):
        make(lease, retries=2).execute(context("submit", try_number=1, max_tries=2))


@pytest.mark.parametrize("old", [{}, {"lease_id": "an earlier version's"}, {"attempt_token": 3}])
def test_an_xcom_of_an_older_format_gets_a_fresh_lease_and_goes_on(
    server, spark, make, context, new_table, client, old
):
    """Its id is that of the sensor and of the release, too; the application leases what it needs."""
    called = spark("")
    table = new_table()
    value = {"tables": [table], **old}
    make(value).execute(context("submit"))
    arguments = called()
    assert "--attempt-token" not in arguments
    lease_id = arguments[arguments.index("--lease-id") + 1]
    assert lease_id not in old.values()
    sensor = FlussTieringStatusSensor(task_id="wait", lease=value, deferrable=False, poke_interval=0.1)
    assert not sensor.poke(context("wait")).is_done

    driver = Driver(client)
    driver.finish(driver.claim({"lease_id": lease_id, "attempt_token": None}, table))

    assert sensor.poke(context("wait")).is_done
    FlussReleaseKvSnapshotLeaseOperator(task_id="release", lease=value).execute(context("release"))
    assert client.list_leases(lease_id) == []
