"""Which KV snapshots the lease of an application pins, and which ones a round leases by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from plain_rounds import LEASE_MS, Application, named

from fluss_tiering.client import TieringClient, lease_latest_snapshots
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket, TableInfo
from fluss_tiering.spark.round.keepalive import KeepAlive
from fluss_tiering.spark.round.lease import Lease, Releaser, TableLease, open_lease, pinned_by_table
from fluss_tiering.spark.runtime import Runtime


def lease_of(client: TieringClient, tables: Sequence[TableInfo], **given: Any) -> Lease:
    options = {"lease_id": None, "attempt_token": None, "duration_ms": LEASE_MS, **given}
    return open_lease(client, [table.path for table in tables], **options)


def snapshots_of(application: Application, table: TableInfo, lease: Lease) -> tuple[dict[TableBucket, int], set[str]]:
    """Return what a round of the table reads, and the leases that it made for it."""
    keepalive = KeepAlive(application.client, LEASE_MS)
    held = TableLease(application.client, keepalive, lease, table)
    claim = SimpleNamespace(table_id=table.table_id, tiering_epoch=7, path=table.path)
    before = {each.lease_id for each in application.client.list_leases()}
    found = held.snapshots(cast("Any", claim), application.client.list_buckets([table.path])[table.path])
    made = {each.lease_id for each in application.client.list_leases()} - before
    with Releaser(application.client) as releaser:
        held.release(releaser)
    assert {each.lease_id for each in application.client.list_leases()} == before, "the round's own lease is released"
    return {bucket: snapshot.snapshot_id for bucket, snapshot in found.items()}, made


def pinned(application: Application, table: TableInfo, lease_id: str) -> Mapping[TableBucket, int]:
    return pinned_by_table(application.client, lease_id).get(table.table_id, {})


def two_tables(application: Application) -> tuple[TableInfo, TableInfo]:
    tables = application.table(num_buckets=2), application.table()
    for table in tables:
        application.write(table, named(range(20), "row"))
    return tables


def test_one_lease_pins_the_snapshots_of_all_tables(application: Application):  # L1
    first, second = two_tables(application)
    lease = lease_of(application.client, [first, second])
    assert lease.lease_id.startswith("fluss-tiering-")
    assert lease.served
    assert lease.duration_ms == LEASE_MS
    assert lease.attempt_token is not None
    assert set(lease.pinned) == {first.table_id, second.table_id}
    for table in (first, second):
        assert set(lease.pinned[table.table_id]) == set(application.ends(table))
        assert snapshots_of(application, table, lease) == (lease.pinned[table.table_id], set())


def test_a_lease_that_was_given_is_used_as_it_is(application: Application):
    first, second = two_tables(application)
    acquired = lease_latest_snapshots(application.client, "given", [first.path], LEASE_MS)
    lease = lease_of(application.client, [first, second], lease_id="given", attempt_token=acquired.attempt_token)
    assert (lease.lease_id, lease.attempt_token) == ("given", acquired.attempt_token)
    assert set(lease.pinned) == {first.table_id}, "nothing is acquired under an id that somebody else holds"
    assert snapshots_of(application, first, lease) == (lease.pinned[first.table_id], set())
    found, made = snapshots_of(application, second, lease)
    assert set(found) == set(application.ends(second))
    assert made == {f"given/{second.table_id}.7"}


def test_a_round_leases_what_an_expired_lease_no_longer_pins(application: Application):
    (table, _) = two_tables(application)
    lease = lease_of(application.client, [table])
    application.client.drop_lease(lease.lease_id)
    found, made = snapshots_of(application, table, lease)
    assert set(found) == set(application.ends(table))
    assert made == {f"{lease.lease_id}/{table.table_id}.7"}


def test_a_table_without_rows_needs_no_lease(application: Application):
    table = application.table()
    lease = lease_of(application.client, [table])
    assert snapshots_of(application, table, lease) == ({}, set())


def test_buckets_without_rows_are_not_missed_in_a_lease(application: Application):
    table = application.table(num_buckets=4)
    application.write(table, named([1], "row"))
    lease = lease_of(application.client, [table])
    found, made = snapshots_of(application, table, lease)
    assert set(found) == set(application.ends(table))
    assert len(found) == 1
    assert made == set()


def test_each_lease_of_a_table_is_renewed_until_it_is_released(application: Application):
    first, second = two_tables(application)
    lease = lease_of(application.client, [first])
    told: list[tuple[object, ...]] = []
    keepalive = SimpleNamespace(
        hold=lambda *of: told.append(("hold", *of)), let_go=lambda *of: told.append(("let go", *of))
    )
    claim = SimpleNamespace(table_id=second.table_id, tiering_epoch=7, path=second.path)
    held = TableLease(application.client, cast("Any", keepalive), lease, second)
    held.hold(set())
    assert told == [], "the lease pins nothing of the table"
    held.hold(set(application.ends(second)))
    held.snapshots(cast("Any", claim), application.client.list_buckets([second.path])[second.path])
    own = f"{lease.lease_id}/{second.table_id}.7"
    assert told == [("hold", each, second.table_id) for each in (lease.lease_id, own)]
    told.clear()
    with Releaser(application.client) as releaser:
        held.release(releaser)
    assert told == [("let go", each, second.table_id) for each in (lease.lease_id, own)]
    assert not pinned(application, second, own)


def test_a_snapshot_that_is_gone_is_replaced_by_a_newer_one(application: Application, monkeypatch):
    (table, _) = two_tables(application)
    lease = lease_of(application.client, [table])
    metadata = TieringClient.kv_snapshot_metadata
    asked: list[object] = []

    def gone_at_first(client: TieringClient, snapshots: Any) -> Any:
        asked.append(snapshots)
        if len(asked) == 1:
            raise FlussTieringError(ErrorCode.KV_SNAPSHOT_NOT_EXIST, "gone")
        return metadata(client, snapshots)

    monkeypatch.setattr(TieringClient, "kv_snapshot_metadata", gone_at_first)
    found, made = snapshots_of(application, table, lease)
    assert set(found) == set(application.ends(table))
    assert made == {f"{lease.lease_id}/{table.table_id}.7"}


@pytest.mark.parametrize("code", [ErrorCode.UNAVAILABLE, ErrorCode.STORAGE])
def test_another_failure_ends_the_round(application: Application, monkeypatch, code: ErrorCode):
    (table, _) = two_tables(application)
    lease = lease_of(application.client, [table])

    def broken(*_: object) -> None:
        raise FlussTieringError(code, "broken")

    monkeypatch.setattr(TieringClient, "kv_snapshot_metadata", broken)
    with pytest.raises(FlussTieringError, match="broken"):
        snapshots_of(application, table, lease)


@pytest.mark.parametrize(
    ("code", "served", "refused"),
    [
        (ErrorCode.UNSUPPORTED_VERSION, False, False),
        (ErrorCode.KV_SNAPSHOT_NOT_EXIST, True, False),
        (ErrorCode.UNAVAILABLE, True, True),
    ],
)
def test_a_server_that_grants_no_lease(application: Application, monkeypatch, code, served, refused):
    (table, _) = two_tables(application)
    application.client.take_kv_snapshots([table.path])

    def refuse(*_: object, **__: object) -> None:
        raise FlussTieringError(code, "refused")

    with monkeypatch.context() as patched:
        patched.setattr("fluss_tiering.spark.round.lease.lease_latest_snapshots", refuse)
        if refused:
            with pytest.raises(FlussTieringError, match="refused"):
                lease_of(application.client, [table])
            return
        lease = lease_of(application.client, [table])
    assert (lease.served, lease.pinned, lease.attempt_token, lease.duration_ms) == (served, {}, None, LEASE_MS)
    found, made = snapshots_of(application, table, lease)
    assert set(found) == set(application.ends(table))
    assert len(made) == (1 if served else 0), "without leases the latest snapshots are read"


def test_what_cannot_be_released_stays_pinned_until_the_lease_expires(application: Application, monkeypatch, caplog):
    (table, _) = two_tables(application)
    lease = lease_of(application.client, [table])
    buckets = set(lease.pinned[table.table_id])

    def refused(*_: object, **__: object) -> None:
        raise FlussTieringError(ErrorCode.UNAVAILABLE, "away")

    with monkeypatch.context() as patched, Releaser(application.client, close_timeout_s=0.1) as releaser:
        patched.setattr(TieringClient, "release_lease", refused)
        releaser.release(lease.lease_id, buckets, lease.attempt_token)
    assert f"lease {lease.lease_id} keeps {len(buckets)} buckets until it expires" in caplog.text
    assert set(pinned(application, table, lease.lease_id)) == buckets
    with Releaser(application.client) as releaser:
        for bucket in buckets:
            releaser.release(lease.lease_id, {bucket}, lease.attempt_token)
    assert not pinned(application, table, lease.lease_id)


class Impatient:
    """An event whose pauses take no time. It keeps them."""

    def __init__(self) -> None:
        self.pauses: list[float | None] = []
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True

    def wait(self, timeout: float | None = None) -> bool:
        self.pauses.append(timeout)
        return self._set


def test_a_release_is_tried_with_pauses_that_grow_from_half_a_second_to_half_a_minute(monkeypatch):
    monkeypatch.setattr("random.uniform", lambda least, most: most)
    event = Impatient()
    tried: list[tuple[object, ...]] = []

    def release(lease_id: str, buckets: set[TableBucket], *, attempt_token: int | None) -> None:
        tried.append((lease_id, buckets, attempt_token))
        if len(tried) < 9:
            raise FlussTieringError(ErrorCode.UNAVAILABLE, "away")

    client = cast("Any", SimpleNamespace(release_lease=release))
    with Releaser(client, runtime=Runtime(new_event=lambda: event)) as releaser:
        releaser.release("X", {TableBucket(7, 0)}, 5)
        releaser.release("Y", {TableBucket(7, 1)}, None)
    assert event.pauses == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert tried == [("X", {TableBucket(7, 0)}, 5)] * 9 + [("Y", {TableBucket(7, 1)}, None)]
    assert event.is_set(), "nothing is tried after the end"
