"""How long an unavailable server is put up with."""

from __future__ import annotations

import pytest

from airflow_provider_fluss.outcome import Verdict
from airflow_provider_fluss.patience import Patience
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

AWAY = FlussTieringError(ErrorCode.UNAVAILABLE, "connection refused")


def test_a_spell_within_the_bound_is_tolerated_and_one_beyond_it_ends_the_waiting():
    now = [0.0]
    patience = Patience(10, lambda: now[0])
    assert patience.lost(AWAY) is None
    now[0] = 10
    assert patience.lost(AWAY) is None
    now[0] = 10.5
    given_up = patience.lost(AWAY)
    assert given_up is not None
    assert given_up.verdict is Verdict.UNREACHABLE
    assert "connection refused" in given_up.message


def test_each_spell_is_measured_on_its_own():
    now = [0.0]
    patience = Patience(10, lambda: now[0])
    patience.lost(AWAY)
    now[0] = 9
    patience.restore()
    now[0] = 15
    assert patience.lost(AWAY) is None
    now[0] = 24
    assert patience.lost(AWAY) is None


def test_another_error_is_raised_as_it_is():
    error = FlussTieringError(ErrorCode.INVALID_REQUEST, "no")
    with pytest.raises(FlussTieringError) as raised:
        Patience(10).lost(error)
    assert raised.value is error
