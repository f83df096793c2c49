"""How long an unavailable server is put up with."""

from __future__ import annotations

import logging

import pytest

from airflow_provider_fluss.outage_timer import OutageTimer
from airflow_provider_fluss.outcome import Verdict
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

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
