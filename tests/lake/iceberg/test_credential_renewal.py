"""Credentials that a catalog vends are asked for again before they end, and commits stay on the base of their round."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest
from table_support import commit_of, name, piece

from fluss_tiering.lake.iceberg.metadata import renewal
from fluss_tiering.lake.object_store import credentials_expire_ms
from fluss_tiering.model.errors import ErrorCode, FlussTieringError


def in_minutes(minutes: int) -> dict[str, str]:
    return {"s3.session-token-expires-at-ms": str(int((time.time() + 60 * minutes) * 1000))}


@pytest.fixture
def vended(monkeypatch: pytest.MonkeyPatch) -> tuple[list[dict[str, str]], list[Any]]:
    """What the catalog vends each time that it is asked, and what was asked of it: the table objects."""
    answers: list[dict[str, str]] = []
    handles: list[Any] = []

    def answer(handle, *arguments):
        handles.append(handle)
        return answers[min(len(set(map(id, handles))), len(answers)) - 1]

    monkeypatch.setattr(renewal, "file_io_properties", answer)
    return answers, handles


# D47
def test_credentials_that_end_soon_are_renewed_before_a_stage(catalogs, keyed, vended):
    answers, handles = vended
    answers += [in_minutes(5), in_minutes(60)]
    lake = catalogs.open_table(keyed)

    writer = lake.file_writer()

    assert len(handles) == 2
    assert handles[1] != handles[0], "the table is loaded again, since the catalog vends credentials with it"
    assert credentials_expire_ms(writer.io_properties) > (time.time() + 30 * 60) * 1000
    assert lake.base() is None
    assert lake.file_writer() == writer
    assert handles[2] is handles[1], "those that are fresh stay"
    assert "expires" not in repr(writer)


def test_credentials_that_a_store_refused_are_renewed_however_long_they_would_last(catalogs, keyed, vended):
    answers, _ = vended
    answers += [in_minutes(60), in_minutes(70)]
    lake = catalogs.open_table(keyed)
    first = lake.file_writer()
    renewed = lake.file_writer(renew=True)
    assert renewed != first
    assert lake.file_writer(renew=True) == renewed, "a catalog without others gives the same"


def test_a_session_whose_end_is_not_known_is_renewed_each_time(catalogs, keyed, vended):
    answers, handles = vended
    answers.append({"s3.session-token": "of unknown length"})
    lake = catalogs.open_table(keyed)
    lake.file_writer()
    lake.file_writer()
    assert len(set(map(id, handles))) == 3


def test_a_commit_writes_with_credentials_that_last(catalogs, keyed, vended):
    answers, handles = vended
    answers.append(in_minutes(60))
    lake = catalogs.open_table(keyed)
    files = piece(lake, {1: "a"})
    answers[:] = [in_minutes(5)]
    lake.file_writer()
    before = handles[-1]
    snapshot = lake.commit([files], commit_of(1))
    committed = lake._renewed.newest
    assert committed is not before
    assert lake.size(snapshot).records == 1
    assert lake.base() is None, "the base of a round stays what it was"
    assert catalogs.open_table(keyed).base() == snapshot


def test_a_commit_with_new_credentials_still_finds_what_others_committed(catalogs, keyed, vended):
    answers, _ = vended
    answers.append(in_minutes(5))
    lake, other = catalogs.open_table(keyed), catalogs.open_table(keyed)
    files = piece(lake, {1: "a"})
    landed = other.commit([piece(other, {1: "b"})], commit_of(1))
    with pytest.raises(FlussTieringError) as raised:
        lake.commit([files], commit_of(2))
    assert raised.value.code is ErrorCode.LAKE_CONFLICT
    assert catalogs.open_table(keyed).base() == landed


def test_no_commit_lands_in_another_table_of_the_same_name(spark, catalogs, keyed, vended):
    answers, _ = vended
    answers.append(in_minutes(5))
    lake = catalogs.open_table(keyed)
    files = piece(lake, {1: "a"})
    spark.sql(f"DROP TABLE {name(keyed)}")
    catalogs.open_table(keyed)
    with pytest.raises(FlussTieringError, match="replaced by another one during the round") as raised:
        lake.commit([files], commit_of(1))
    assert raised.value.code is ErrorCode.LAKE_CONFLICT
    assert catalogs.open_table(keyed).base() is None
    assert not any(Path(urlparse(file.location).path).exists() for file in files)
