"""Acquire and release against a real server."""

from __future__ import annotations

from datetime import timedelta

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG, task_group
from provider_support import AWAY, is_shown_alone
from refusals import refused
from structlog.testing import capture_logs

from airflow_provider_fluss.operators.lease import (
    FlussAcquireKvSnapshotLeaseOperator,
    FlussReleaseKvSnapshotLeaseOperator,
)
from airflow_provider_fluss.operators.round import FlussTieringOperator
from airflow_provider_fluss.operators.tiering import FlussTieringSparkOperator
from cases import cases
from examples.ports import free_ports
from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import LeaseDrop, TieringState


@pytest.fixture
def release(context):
    def run(lease: object) -> None:
        FlussReleaseKvSnapshotLeaseOperator(task_id="release", lease=lease).execute(context("release"))

    return run


def test_acquire_pins_the_latest_snapshots_for_the_duration(client, new_table, acquire):  # L1
    table = new_table()
    lease = acquire(table, lease_duration=timedelta(hours=2))
    (pinned,) = client.list_leases(lease["lease_id"])
    assert {bucket.bucket for bucket in pinned.snapshots} <= {0, 1}
    assert pinned.snapshots
    assert pinned.expiration_time - pinned.acquired_time == 2 * 60 * 60 * 1000
    assert lease == {
        "lease_id": pinned.lease_id,
        "attempt_token": pinned.attempt_token,
        "tables": [table],
        "lease_duration_ms": 2 * 60 * 60 * 1000,
        "fluss_conn_id": "fluss_default",
    }


def test_a_further_try_goes_on_with_the_lease_and_its_attempt(client, new_table, acquire, driver):  # D60, L17
    table = new_table()
    first = acquire(table)
    (pinned,) = client.list_leases(first["lease_id"])
    assert acquire(table) == first
    (renewed,) = client.list_leases(first["lease_id"])
    assert renewed.snapshots == pinned.snapshots
    assert renewed.expiration_time > pinned.expiration_time
    claim = driver.claim(first, table)
    assert acquire(table) == first
    driver.finish(claim)


@pytest.mark.parametrize("ended", ["tiered", "failed", "cancelled", "dropped"])
def test_after_an_attempt_that_is_over_a_new_one_begins(client, new_table, acquire, driver, ended):  # D62, L17
    table = new_table()
    first = acquire(table)
    match ended:
        case "tiered":
            driver.tier(first, table)
        case "failed":
            driver.fail_round(first, table, "disk full")
        case "cancelled":
            client.cancel_tiering(first["lease_id"], first["attempt_token"], "stopped")
        case "dropped":
            client.drop_lease(first["lease_id"], attempt_token=first["attempt_token"])
    second = acquire(table)
    assert second["lease_id"] == first["lease_id"]
    assert second["attempt_token"] > first["attempt_token"]
    assert client.lease_outcome(second["lease_id"], second["attempt_token"]).rounds == ()


@pytest.mark.parametrize(
    ("state", "goes_on"),
    [
        *[(each, True) for each in ("running", "queued", "scheduled", "up_for_retry", "restarting", "deferred")],
        # Nothing would run under a new attempt.
        *[(each, True) for each in ("success", "failed", "skipped")],
        (None, False),
    ],
)
def test_an_attempt_goes_on_while_its_submit_task_may_use_it_and_nobody_else_will(  # D60, D62
    new_table, driver, context, task_states, state, goes_on
):
    table = new_table()
    with DAG("dag"):
        acquire = FlussAcquireKvSnapshotLeaseOperator(task_id="acquire", tables=[table])
        FlussTieringSparkOperator(task_id="submit", lease=acquire.output)
        acquire >> FlussReleaseKvSnapshotLeaseOperator(task_id="release", lease=acquire.output)
    found = {**context("acquire"), "task": acquire}
    task_states["submit"] = None
    first = acquire.execute(found)
    driver.fail_round(first, table, "the JVM was killed")
    task_states["submit"] = state
    assert (acquire.execute(found)["attempt_token"] == first["attempt_token"]) is goes_on


def test_an_operator_for_all_behind_the_acquire_task_is_not_its_submit_task(new_table, driver, context, task_states):
    table = new_table()
    with DAG("dag"):
        acquire = FlussAcquireKvSnapshotLeaseOperator(task_id="acquire", tables=[table])
        submit = FlussTieringSparkOperator(task_id="submit", lease=acquire.output)
        acquire >> FlussTieringOperator(task_id="other", tables=["db.other"])
        acquire >> FlussTieringOperator.partial(task_id="mapped").expand(tables=[["db.other"]])
    found = {**context("acquire"), "task": acquire}
    task_states.update({submit.task_id: None, "other": None, "mapped_0": None})
    first = acquire.execute(found)
    driver.tier(first, table)
    task_states.update({submit.task_id: None, "other": "success", "mapped_0": "success"})
    assert acquire.execute(found)["attempt_token"] > first["attempt_token"]
    second = acquire.execute(found)
    driver.fail_round(second, table, "the JVM was killed")
    task_states.update({submit.task_id: "up_for_retry", "other": None, "mapped_0": None})
    assert acquire.execute(found) == second


def test_a_cleared_acquire_of_a_table_that_was_made_anew_asks_to_clear_the_submit_task(  # D60
    client, new_table, driver, context, task_states
):
    table = new_table()
    with DAG("dag"):
        acquire = FlussAcquireKvSnapshotLeaseOperator(task_id="acquire", tables=[table])
        FlussTieringSparkOperator(task_id="submit", lease=acquire.output)
    found = {**context("acquire"), "task": acquire}
    task_states["submit"] = None
    first = acquire.execute(found)
    driver.tier(first, table)
    task_states["submit"] = "success"
    assert acquire.execute(found) == first
    path = TablePath.parse(table)
    (info,) = client.get_tables([path])
    client.drop_table(path, drop_untiered=True)
    client.create_table(path, info.descriptor)
    with pytest.raises(AirflowFailException, match=rf"^Nothing would tier {table}: .*Clear the submit task"):
        acquire.execute(found)
    task_states["submit"] = None
    assert acquire.execute(found)["lease_id"] != first["lease_id"]


def test_in_a_mapped_group_the_submit_task_of_the_same_index_decides(new_table, driver, context, task_states):  # D60
    table = new_table()
    with DAG("dag") as dag:

        @task_group
        def tier(tables):
            acquire = FlussAcquireKvSnapshotLeaseOperator(task_id="acquire", tables=tables)
            FlussTieringSparkOperator(task_id="submit", lease=acquire.output)

        tier.expand(tables=[[table], ["db.other"]])
    acquire = dag.get_task("tier.acquire")
    acquire.tables = [table]
    found = {**context("tier.acquire"), "task": acquire}
    found["ti"].map_index = 0
    task_states.update({"tier.submit_0": None, "tier.submit_1": "running"})
    first = acquire.execute(found)
    driver.fail_round(first, table, "the JVM was killed")
    task_states.update({"tier.submit_0": "running", "tier.submit_1": None})
    assert acquire.execute(found) == first
    task_states.update({"tier.submit_0": None, "tier.submit_1": "running"})
    assert acquire.execute(found) != first


def test_mapped_instances_with_the_same_tables_do_not_end_each_others_attempts(client, new_table, driver, context):
    table = new_table()

    def acquire(index: int) -> dict:
        found = context("acquire")
        found["ti"].map_index = index
        return FlussAcquireKvSnapshotLeaseOperator(task_id="acquire", tables=[table]).execute(found)

    first, second = acquire(0), acquire(1)
    claim = driver.claim(first, table)
    with refused(ErrorCode.TABLE_BEING_TIERED):
        driver.claim(second, table)
    assert client.cancel_tiering(second["lease_id"], second["attempt_token"], "the second failed")
    assert acquire(0) == first
    driver.finish(claim)


def test_one_lease_spans_tables_with_and_without_anything_to_pin(client, new_table, acquire):  # L24
    keyed, other, log = new_table(), new_table(), new_table(primary_key=False)
    lease = acquire(keyed, other, log, keyed)
    assert lease["tables"] == [keyed, other, log]
    (pinned,) = client.list_leases(lease["lease_id"])
    ids = {
        info.path: info.table_id for info in client.get_tables([TablePath.parse(each) for each in (keyed, other, log)])
    }
    assert {bucket.table_id for bucket in pinned.snapshots} == {
        ids[TablePath.parse(keyed)],
        ids[TablePath.parse(other)],
    }


def test_a_log_table_needs_no_snapshot_and_goes_on(client, new_table, acquire):
    lease = acquire(new_table(primary_key=False))
    assert lease["attempt_token"] > 0
    assert client.list_leases(lease["lease_id"]) == []


@cases(
    ("tables", "named"),
    [
        (["db.nosuch"], "db.nosuch"),
        (["no path"], "'no path'"),
        ([], r"\[\]"),
        ("db.t", "'db.t'"),
        ([1, None], "tables has 1 in it"),
        ([["db.t"]], "tables has .* in it"),
        (5, "tables is 5"),
        (None, "tables is None"),
        ({"db.t": 1}, "tables is {'db.t': 1}"),
    ],
)
def test_wrong_tables_are_named_and_not_tried_again(server, context, tables, named):
    with pytest.raises(AirflowFailException, match=named) as failed:
        FlussAcquireKvSnapshotLeaseOperator(task_id="acquire", tables=tables).execute(context())
    assert is_shown_alone(failed.value)


NO_DURATIONS = [timedelta(seconds=-5), timedelta(0), timedelta(microseconds=1), timedelta(days=999_999_999)]


@cases("duration", [*NO_DURATIONS, "soon", "0s", 5, None])
def test_a_wrong_lease_duration_is_named_and_not_tried_again(new_table, acquire, duration):
    with pytest.raises(AirflowFailException, match=r"^lease_duration.*expected"):
        acquire(new_table(), lease_duration=duration)


def test_a_lease_duration_may_be_a_text(new_table, acquire):
    assert acquire(new_table(), lease_duration="30min")["lease_duration_ms"] == 30 * 60 * 1000


@pytest.mark.parametrize("wrong", [{"attempt_token": True}, {"tables": ["nodot"]}, {"lease_id": "x" * 5000}])
def test_release_of_a_malformed_lease_fails_and_is_not_tried_again(new_table, acquire, release, wrong):
    lease = acquire(new_table())
    with pytest.raises(AirflowFailException, match=f"found {next(iter(wrong))}") as failed:
        release({**lease, **wrong})
    assert is_shown_alone(failed.value)


def test_a_table_that_is_not_tiered_is_named_and_not_tried_again(client, new_table, acquire):
    table = new_table()
    client.alter_table(TablePath.parse(table), {"table.datalake.enabled": "false"})
    with pytest.raises(AirflowFailException, match=rf"^{table}: .*table\.datalake\.enabled=true$"):
        acquire(table)


def test_an_unreachable_server_is_an_error_that_another_try_may_mend(monkeypatch, acquire):
    monkeypatch.setenv("AIRFLOW_CONN_AWAY", f"fluss://127.0.0.1:{free_ports(1)[0]}?timeout=1")
    with refused(ErrorCode.UNAVAILABLE):
        acquire("db.t", fluss_conn_id="away")


def test_release_drops_the_lease_and_repeating_it_changes_nothing(client, new_table, acquire, release):  # L8
    lease = acquire(new_table())
    release(lease)
    assert client.list_leases(lease["lease_id"]) == []
    release(lease)


def test_release_after_the_rounds_ended_says_nothing_of_a_cancellation(client, new_table, acquire, driver, release):
    table = new_table()
    lease = acquire(table)
    driver.tier(lease, table)
    release(lease)
    outcome = client.lease_outcome(lease["lease_id"], lease["attempt_token"])
    assert [each.state for each in outcome.rounds] == [TieringState.TIERED]
    assert outcome.cancelled_reason is None


def test_release_ends_what_still_runs_and_keeps_it_out(client, new_table, acquire, driver, release):
    running, unclaimed = new_table(), new_table()
    lease = acquire(running, unclaimed)
    driver.claim(lease, running)
    release(lease)
    (ended,) = client.lease_outcome(lease["lease_id"], lease["attempt_token"]).rounds
    assert ended.state is TieringState.FAILED
    assert "release" in (ended.error or "")
    for table in (running, unclaimed):
        with refused(ErrorCode.STALE_ATTEMPT):
            driver.claim(lease, table)


def test_release_of_an_older_attempt_leaves_the_newer_alone(client, new_table, acquire, driver, release):  # L22
    table = new_table()
    older = acquire(table)
    driver.fail_round(older, table, "disk full")
    newer = acquire(table)
    claim = driver.claim(newer, table)
    with capture_logs() as logs:
        release(older)
    assert any("newer attempt" in entry["event"] for entry in logs)
    (pinned,) = client.list_leases(newer["lease_id"])
    assert pinned.attempt_token == newer["attempt_token"]
    driver.finish(claim)
    assert client.drop_lease(newer["lease_id"], attempt_token=newer["attempt_token"]) is LeaseDrop.DROPPED


@pytest.mark.parametrize("lease", [None, {}, {"lease": "old format"}, []])
def test_release_without_a_lease_succeeds_and_says_so(release, lease):
    with capture_logs() as logs:
        release(lease)
    assert any("Nothing to release" in entry["event"] for entry in logs)


def test_a_release_that_does_not_reach_the_server_fails_to_be_tried_again(monkeypatch, release):  # L13
    monkeypatch.setenv("AIRFLOW_CONN_AWAY", f"fluss://127.0.0.1:{free_ports(1)[0]}?timeout=1")
    with pytest.raises(FlussTieringError):
        release(AWAY)


def test_a_server_without_leases_is_warned_of_and_neither_task_fails(new_table, acquire, release, monkeypatch):  # L15
    def unserved(*_args, **_kwargs):
        raise FlussTieringError(ErrorCode.UNSUPPORTED_VERSION, "unknown service KvSnapshotLeases")

    for method in ("acquire_lease", "drop_lease"):
        monkeypatch.setattr(TieringClient, method, unserved)
    with capture_logs() as logs:
        lease = acquire(new_table())
    assert lease["attempt_token"] is None
    assert ["has no KV snapshot leases" in entry["event"] for entry in logs].count(True) == 1
    release(lease)
