"""Scan sessions of Fluss 1.0: how they end, and what they wait for."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from fluss_scanning import (
    PLACES,
    SMALL,
    Scanning,
    WatchedClient,
    bucket_of,
    free_places,
    names,
    new_table,
    upsert,
)
from refusals import refused

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.storage.fluss.kv_scan import ClusterKvScan, SessionKvScan
from fluss_tiering.storage.fluss.reading import scan_session
from fluss_tiering.storage.fluss.reading.scan_session import BucketScans, ScanSession
from fluss_tiering.storage.fluss.rpc.calls.kv import SessionRows, close_session
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from fluss_tiering.storage.fluss.rpc.errors import FlussConnectionError
from fluss_tiering.storage.fluss.storage import FlussStorage
from fluss_tiering.storage.reading import RetryBackoff
from waiting import wait_until

pytestmark = pytest.mark.fluss_versions("1.0")


def test_whoever_stops_early_leaves_no_session(storage: FlussStorage, fluss: FlussClient, small: None) -> None:
    table = new_table(storage)
    upsert(storage, table, 0, 500)
    stopped = BucketScans(fluss).open(table, bucket_of(table))
    next(stopped)
    stopped.close()
    failing = BucketScans(WatchedClient(fluss, lambda rows: replace(rows, records=rows.records[:-1])))
    with refused(ErrorCode.CORRUPT_DATA):
        next(failing.open(table, bucket_of(table)))
    scanning = Scanning(storage, table)
    scanning.scan.read(None, SMALL, None)
    assert free_places(fluss, table) == PLACES - 1
    scanning.scan.close()
    scanning.scan.close()
    assert (free_places(fluss, table), scanning.lost) == (PLACES, 0)
    other = open_storage_of(storage)
    scanning = Scanning(other, table)
    other.close()
    assert (free_places(fluss, table), scanning.lost) == (PLACES, 1)
    with refused(ErrorCode.SCANNER_EXPIRED, "start the scan again"):
        scanning.scan.read(None, None, None)


def open_storage_of(storage: FlussStorage) -> FlussStorage:
    return FlussStorage.open(replace(storage.link, client=FlussClient(storage.link.bootstrap_servers)), within=20)


def lose_answer(number: int) -> Callable[[SessionRows], SessionRows]:
    """Lose the answer that has this number, from 0 on, although the server gave it."""
    numbers = itertools.count()

    def alter(rows: SessionRows) -> SessionRows:
        if next(numbers) == number:
            raise FlussConnectionError("the connection broke", outcome_unknown=True)
        return rows

    return alter


def test_a_lost_answer_ends_the_session_and_is_not_asked_for_again(  # K15
    storage: FlussStorage, fluss: FlussClient, small: None
) -> None:
    table = new_table(storage)
    upsert(storage, table, 0, 500)
    watched = WatchedClient(fluss, lose_answer(2))
    batches = BucketScans(watched).open(table, bucket_of(table))
    given = [next(batches), next(batches)]
    with refused(ErrorCode.SCANNER_EXPIRED, "the connection broke", str(table.path), "start the scan again"):
        next(batches)
    assert watched.asked == ["open", "1", "2", "close"]
    assert list(batches) == []
    # The session itself asks nothing more, whoever uses it.
    watched = WatchedClient(fluss, lose_answer(1))
    session = ScanSession.open(watched, table.path, bucket_of(table))
    session.take()
    for _ in range(2):
        with refused(ErrorCode.SCANNER_EXPIRED):
            session.take()
    assert not session.has_more
    assert watched.asked == ["open", "1", "close"]
    assert free_places(fluss, table) == PLACES
    # A task that runs again gives each row once, and those of the failed one were thrown away.
    assert len(given) == 2
    assert len(names(BucketScans(fluss).open(table, bucket_of(table)))) == 500


def end_sessions(fluss: FlussClient, session: ScanSession) -> None:
    fluss.call(close_session(session._path, session._bucket, session._scanner_id))


def test_a_session_that_the_server_ended_is_lost(storage: FlussStorage, fluss: FlussClient, small: None) -> None:
    table = new_table(storage)
    upsert(storage, table, 0, 500)
    watched = WatchedClient(fluss)
    session = ScanSession.open(watched, table.path, bucket_of(table))
    session.take()
    end_sessions(fluss, session)
    with refused(ErrorCode.SCANNER_EXPIRED, "UNKNOWN_SCANNER_ID", "start the scan again"):
        session.take()
    session.close()
    assert watched.asked == ["open", "1"]
    # A client of the tiering server hears it, too, and its scanner goes.
    scanning = Scanning(storage, table)
    first = scanning.scan.read(None, SMALL, None)
    end_sessions(fluss, scanning.scan._session)
    with refused(ErrorCode.SCANNER_EXPIRED):
        scanning.scan.read(first.next_position, SMALL, None)
    with refused(ErrorCode.SCANNER_EXPIRED):
        scanning.scan.read(None, SMALL, None)
    scanning.scan.close()
    assert (scanning.lost, free_places(fluss, table)) == (1, PLACES)


# K15
def test_a_client_may_read_its_last_batch_again_and_no_earlier_one(storage: FlussStorage, small: None) -> None:
    table = new_table(storage)
    upsert(storage, table, 0, 200)
    scan = Scanning(storage, table).scan
    assert isinstance(scan, SessionKvScan)
    first = scan.read(None, 300, None)
    assert scan.read(None, None, len(first.values)).values.equals(first.values)
    second = scan.read(first.next_position, 300, None)
    assert scan.read(first.next_position, None, len(second.values)).values.equals(second.values)
    with refused(ErrorCode.INVALID_REQUEST, "a session gives each row once"):
        scan.read(None, 300, None)
    third = scan.read(second.next_position, 300, 1)
    assert len(third.values) == 1
    scan.close()


def test_a_scan_has_every_row_that_was_acknowledged(  # K5
    storage: FlussStorage, fluss: FlussClient, monkeypatch: pytest.MonkeyPatch, small: None
) -> None:
    table = new_table(storage)
    end = upsert(storage, table, 0, 500)
    behind = itertools.count(-2)

    def late(rows: SessionRows) -> SessionRows:
        # The first two sessions are from before the last row.
        return replace(rows, log_offset=end + min(next(behind), 0)) if rows.log_offset is not None else rows

    watched = WatchedClient(fluss, late)
    with ScanSession.open(watched, table.path, bucket_of(table)) as session:
        assert session.log_offset == end
    assert watched.asked == ["open", "close"] * 3
    # A leader that stays behind is not waited for.
    monkeypatch.setattr(scan_session, "_BEHIND_S", 0.05)
    always = WatchedClient(fluss, lambda rows: replace(rows, log_offset=end - 1))
    assert ScanSession.open(always, table.path, bucket_of(table)) is None
    assert BucketScans(always).open(table, bucket_of(table)) is None
    monkeypatch.setattr(storage._scans, "_client", always)
    scanning = Scanning(storage, table)
    assert isinstance(scanning.scan, ClusterKvScan)
    assert (len(scanning.rows()), scanning.log_offset) == (500, end)
    scanning.scan.close()
    assert free_places(fluss, table) == PLACES


def test_a_place_is_waited_for(  # K1, K2
    storage: FlussStorage, fluss: FlussClient, monkeypatch: pytest.MonkeyPatch, small: None
) -> None:
    table = new_table(storage)
    upsert(storage, table, 0, 500)
    bucket = bucket_of(table)
    held = [BucketScans(fluss).open(table, bucket) for _ in range(PLACES)]
    for each in held:
        next(each)
    refusals = threading.Event()

    def note(self: RetryBackoff, error: FlussTieringError) -> None:
        assert error.code is ErrorCode.TOO_MANY_SCANNERS
        refusals.set()
        wait_after(self, error)

    wait_after = RetryBackoff.wait_after
    monkeypatch.setattr(RetryBackoff, "wait_after", note)
    with ThreadPoolExecutor(3) as tasks:
        waiting = [tasks.submit(lambda: names(BucketScans(fluss).open(table, bucket))) for _ in range(3)]
        wait_until(refusals.is_set)
        assert not any(each.done() for each in waiting)
        held.pop().close()
        assert [len(each.result(60)) for each in waiting] == [500] * 3
    # The server's clients are told, and wait themselves.
    held.append(BucketScans(fluss).open(table, bucket))
    with refused(ErrorCode.TOO_MANY_SCANNERS, "per-bucket"):
        Scanning(storage, table)
    monkeypatch.setattr(RetryBackoff, "wait_after", lambda _, error: (_ for _ in ()).throw(error))
    with refused(ErrorCode.TOO_MANY_SCANNERS, "per-bucket"):
        BucketScans(fluss).open(table, bucket)
    for each in held:
        next(each)
        each.close()
    assert free_places(fluss, table) == PLACES
