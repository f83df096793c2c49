"""The text of a failure as a driver sends it: one that people can read, without secrets and not too long."""

from __future__ import annotations

import logging

import pytest

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.spark.table_run import _text


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (FlussTieringError(ErrorCode.STORAGE, "the lake refused password=hunter2"), "the lake refused password=***"),
        (ValueError("token=hunter2 of the lake"), "ValueError: token=*** of the lake"),
        (KeyError("db.t"), "KeyError: 'db.t'"),
    ],
)
def test_a_failure_is_told_with_its_kind_and_without_secrets(failure: Exception, text: str) -> None:  # S10, S11
    assert _text(failure) == text


@pytest.mark.parametrize("kind", [lambda text: FlussTieringError(ErrorCode.STORAGE, text), ValueError])
def test_a_failure_is_cut_before_it_is_sent(kind) -> None:  # S11, D17
    text = _text(kind("é" * 5000))
    assert len(text) == 2048
    assert text.endswith("é…")


def test_an_unexpected_failure_is_in_the_log_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:  # S10
    with caplog.at_level(logging.ERROR):
        _text(FlussTieringError(ErrorCode.STORAGE, "expected"))
        assert caplog.records == []
        _text(ValueError("unexpected"))
    (record,) = caplog.records
    assert record.exc_info is not None
