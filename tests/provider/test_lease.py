"""The lease id, the XCom value, and how long an unavailable server is put up with."""

from __future__ import annotations

import json
import logging

import pytest

from airflow_provider_fluss.lease import LeaseHandle, MalformedLeaseError, lease_id
from airflow_provider_fluss.outage_timer import OutageTimer
from airflow_provider_fluss.outcome import Verdict
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

RUN = "manual__2026-11-21T10:00:00+00:00"


def test_id_is_the_same_for_every_try_whatever_the_order_of_the_tables():  # L17
    assert lease_id("dag", RUN, "tier.acquire", [7, 3]) == lease_id("dag", RUN, "tier.acquire", [3, 7])


@pytest.mark.parametrize(
    "other",
    [
        ("dag2", RUN, "tier.acquire", [3, 7]),
        ("dag", RUN + "2", "tier.acquire", [3, 7]),
        ("dag", RUN, "tier.acquire2", [3, 7]),
        ("dag", RUN, "tier.acquire", [3]),
        ("dag", RUN, "tier.acquire", [37]),
        ("dag", RUN, "tier.acquire", [3, 7], 0),
    ],
)
def test_id_tells_dags_runs_tasks_and_tables_apart(other):
    assert lease_id("dag", RUN, "tier.acquire", [3, 7]) != lease_id(*other)


def test_id_tells_mapped_instances_with_the_same_tables_apart_and_not_their_tries():
    first, second = (lease_id("dag", RUN, "tier.acquire", [3], index) for index in (0, 1))
    assert first != second
    assert first == lease_id("dag", RUN, "tier.acquire", [3], 0)


def test_id_is_short_and_plain_whatever_the_names():
    long = lease_id("d" * 250, RUN * 5, "t" * 250, range(50))
    assert len(long) <= 100
    assert lease_id("Größe {{ x }}/ü", RUN, "t", [1]).isascii()
    assert not set(" {}/") & set(lease_id("Größe {{ x }}/ü", RUN, "t", [1]))


def test_handle_survives_xcom():
    handle = LeaseHandle("lease", 7, ("db.a", "db.b"), 1000, "fluss_default")
    assert LeaseHandle.from_xcom(json.loads(json.dumps(handle.to_xcom()))) == handle


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (None, "has not succeeded"),
        ({}, "a mapping of nothing"),
        ({"lease": "x"}, "a mapping of lease"),
        ({**LeaseHandle("lease", 7, ("db.a",), 1, "c").to_xcom(), "tables": []}, "lease_id"),
        ({**LeaseHandle("lease", 7, ("db.a",), 1, "c").to_xcom(), "attempt_token": "7"}, "lease_id"),
        ({**LeaseHandle("lease", 7, ("db.a",), 1, "c").to_xcom(), "lease_id": ""}, "lease_id"),
        ([{"lease_id": "x"}, {}], "2 values"),
        ("lease", "str 'lease'"),
    ],
)
def test_anything_else_is_refused_by_name(value, named):
    with pytest.raises(ValueError, match=r"FlussAcquireKvSnapshotLeaseOperator.*found") as refused:
        LeaseHandle.from_xcom(value)
    assert named in str(refused.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[("attempt_token", value) for value in (True, 0, -1, 2**63, 1.5, "7")],
        *[("tables", value) for value in (["nodot"], [], [None], [["db.a"]], "db.a", {"db.a": 1}, 5)],
        *[("lease_duration_ms", value) for value in (-1, 0, True, 1.5, None, 31 * 86_400_000)],
        *[("lease_id", value) for value in ("", "x" * 5000, "a\nb", None, 7)],
        *[("fluss_conn_id", value) for value in ("", "x" * 5000, None)],
    ],
)
def test_a_wrong_field_is_named_in_one_short_line(field, value):
    lease = {**LeaseHandle("lease", 7, ("db.a",), 1, "c").to_xcom(), field: value}
    with pytest.raises(MalformedLeaseError, match=rf"found {field} .*: expected .*Pass lease=") as refused:
        LeaseHandle.from_xcom(lease)
    assert len(str(refused.value)) < 500
    assert "\n" not in str(refused.value)


def test_a_fresh_lease_of_an_older_format_is_of_one_dag_run():  # L23
    old = {"tables": ["db.a", "db.b"]}
    fresh = LeaseHandle.from_xcom(old, "dag", RUN)
    assert fresh == LeaseHandle.from_xcom(dict(old), "dag", RUN)
    assert (fresh.attempt_token, fresh.tables, fresh.fluss_conn_id) == (None, ("db.a", "db.b"), "fluss_default")
    assert fresh.lease_id != LeaseHandle.from_xcom(old, "dag", RUN + "2").lease_id
    assert fresh.lease_id != LeaseHandle.from_xcom({"tables": ["db.a"]}, "dag", RUN).lease_id
    assert LeaseHandle.from_xcom(json.loads(json.dumps(fresh.to_xcom()))) == fresh


LOG = logging.getLogger("task")
AWAY = FlussTieringError(ErrorCode.UNAVAILABLE, "connection refused")


@pytest.mark.parametrize("code", [ErrorCode.UNAVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_a_server_that_is_replaced_is_waited_for_as_one_that_is_away(code: ErrorCode):  # D4
    outage = OutageTimer(10, lambda: 0.0)
    assert outage.lost(FlussTieringError(code, "another server took over"), LOG) is None


def test_a_spell_within_the_bound_is_tolerated_and_one_beyond_it_ends_the_waiting():
    now = [0.0]
    outage = OutageTimer(10, lambda: now[0])
    assert outage.lost(AWAY, LOG) is None
    now[0] = 10
    assert outage.lost(AWAY, LOG) is None
    now[0] = 10.5
    given_up = outage.lost(AWAY, LOG)
    assert given_up is not None
    assert given_up.verdict is Verdict.UNREACHABLE
    assert "connection refused" in given_up.message


def test_each_spell_is_measured_on_its_own():
    now = [0.0]
    outage = OutageTimer(10, lambda: now[0])
    outage.lost(AWAY, LOG)
    now[0] = 9
    outage.restore(LOG)
    now[0] = 15
    assert outage.lost(AWAY, LOG) is None
    now[0] = 24
    assert outage.lost(AWAY, LOG) is None


def test_another_error_is_raised_as_it_is():
    error = FlussTieringError(ErrorCode.INVALID_REQUEST, "no")
    with pytest.raises(FlussTieringError) as raised:
        OutageTimer(10).lost(error, LOG)
    assert raised.value is error


def test_an_outage_is_told_when_it_begins_once_a_minute_and_when_it_ends(caplog: pytest.LogCaptureFixture):
    now = [0.0]
    outage = OutageTimer(1000, lambda: now[0])
    caplog.set_level(logging.INFO)
    outage.restore(LOG)
    for second in range(0, 150, 5):
        now[0] = second
        assert outage.lost(AWAY, LOG) is None
    outage.restore(LOG)
    outage.restore(LOG)
    now[0] = 151
    assert outage.lost(AWAY, LOG) is None
    away = "The tiering server is unavailable, trying again: connection refused"
    assert caplog.messages == [away, away, away, "The tiering server answers again after 145 s", away]
