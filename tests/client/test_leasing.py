"""The first step of a round, which leases KV snapshots (L6, L7, L12, L17, L24)."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from refusals import refused

from engine_support import HOUR, SCHEMA, ServerThread, new_table, tier
from fluss_tiering.client import TieringClient, lease_latest_snapshots, leasing
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import KvSnapshot, TableBucket, TableInfo, TablePath, WriteKind
from fluss_tiering.model.tiering import AcquiredLease
from fluss_tiering.wire.checks import MAX_ENTRIES


def pinned(client: TieringClient, lease_id: str) -> dict[TableBucket, int]:
    leases = client.list_leases(lease_id)
    return dict(leases[0].snapshots) if leases else {}


def latest(client: TieringClient, table: TableInfo) -> dict[TableBucket, int]:
    return {
        info.bucket: info.latest_kv_snapshot.snapshot_id
        for info in client.list_buckets([table.path])[table.path]
        if info.latest_kv_snapshot
    }


def test_all_snapshots_of_a_round_are_leased_at_once(client: TieringClient) -> None:  # L12, L24
    one, two = new_table(client, range(50), num_buckets=3), new_table(client, range(50), num_buckets=2)
    log = new_table(client, range(50), primary_key=False)
    acquired = lease_latest_snapshots(client, "all", [one.path, log.path, two.path], HOUR)
    assert acquired.unavailable_snapshots == {}
    assert pinned(client, "all") == {**latest(client, one), **latest(client, two)}
    assert len(pinned(client, "all")) == 5
    assert client.list_leases("all")[0].expiration_time == acquired.expiration_time


def test_a_lease_has_more_snapshots_than_one_request_may_name(client: TieringClient) -> None:
    table = new_table(client, range(50), num_buckets=2)
    (taken, other) = client.take_kv_snapshots([table.path])[table.table_id]
    named = {TableBucket(table.table_id, 1000 + number): 7 for number in range(MAX_ENTRIES)}
    named |= {each.bucket: each.snapshot_id for each in (taken, other)}
    acquired = client.acquire_lease("more than one request", HOUR, named)
    assert acquired.unavailable_snapshots.keys() == named.keys() - {taken.bucket, other.bucket}
    assert pinned(client, "more than one request") == {each.bucket: each.snapshot_id for each in (taken, other)}
    assert client.list_leases("more than one request")[0].attempt_token == acquired.attempt_token

    asked = [(taken.bucket, taken.snapshot_id)] * MAX_ENTRIES + [(other.bucket, other.snapshot_id)]
    assert client.kv_snapshot_metadata(asked) == [taken] * MAX_ENTRIES + [other]

    some = named.keys() - {taken.bucket}
    stale = acquired.attempt_token - 1
    assert not client.release_lease("more than one request", some, attempt_token=stale)
    assert client.release_lease("more than one request", some, attempt_token=acquired.attempt_token)
    assert pinned(client, "more than one request") == {taken.bucket: taken.snapshot_id}


def test_an_application_has_more_tables_than_one_request_may_name(client: TieringClient) -> None:
    table = new_table(client, range(50), num_buckets=2)
    paths = [table.path] * (MAX_ENTRIES + 1)
    assert client.get_tables(paths) == [client.get_tables([table.path])[0]] * len(paths)
    assert client.list_buckets(paths) == client.list_buckets([table.path])


def test_buckets_without_data_need_no_snapshot(client: TieringClient) -> None:
    table = new_table(client, [1], num_buckets=8)
    lease_latest_snapshots(client, "one row", [table.path], HOUR)
    assert len(pinned(client, "one row")) == 1


def test_tiered_buckets_need_no_snapshot(client: TieringClient) -> None:
    table = new_table(client, [1, 2, 3])
    tier(client, table)
    acquired = lease_latest_snapshots(client, "tiered", [table.path], HOUR)
    assert (acquired.expiration_time, pinned(client, "tiered")) == (0, {})
    assert acquired.attempt_token > 0, "an attempt begins all the same"


def test_the_snapshots_of_many_buckets_are_taken_some_at_a_time(
    client: TieringClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A table of a thousand buckets needs longer than the deadline of one call.
    monkeypatch.setattr(leasing, "_SNAPSHOTS_PER_CALL", 4)
    many, few = new_table(client, range(200), num_buckets=9), new_table(client, range(50), num_buckets=2)
    asked: list[int] = []
    take = client.take_kv_snapshots

    def counted(paths: Sequence[TablePath], buckets: Collection[TableBucket] = ()) -> dict[int, list[KvSnapshot]]:
        taken = take(paths, buckets)
        asked.append(sum(map(len, taken.values())))
        return taken

    monkeypatch.setattr(client, "take_kv_snapshots", counted)
    lease_latest_snapshots(client, "many", [many.path, few.path], HOUR)
    assert asked == [4, 4, 3], "and a call takes those of more than one table"
    assert pinned(client, "many") == {**latest(client, many), **latest(client, few)}


@pytest.mark.parametrize("options", [{"primary_key": False}, {}])
def test_tables_without_anything_to_lease_go_on(client: TieringClient, options: dict[str, bool]) -> None:
    table = new_table(client, **options)
    acquired = lease_latest_snapshots(client, f"nothing {options}", [table.path], HOUR)
    assert acquired.expiration_time == 0
    assert acquired.attempt_token > 0


def test_the_same_round_acquires_again_under_its_lease_id(client: TieringClient) -> None:  # L17
    table = new_table(client, [1])
    first = lease_latest_snapshots(client, "again", [table.path], HOUR)
    second = lease_latest_snapshots(client, "again", [table.path], HOUR)
    assert second.attempt_token > first.attempt_token
    assert len(client.list_leases("again")) == 1


def test_an_unknown_table_leases_nothing(client: TieringClient) -> None:
    table = new_table(client, [1])
    client.drop_table(table.path, drop_untiered=True)
    with refused(ErrorCode.TABLE_NOT_EXIST):
        lease_latest_snapshots(client, "unknown", [table.path], HOUR)
    assert pinned(client, "unknown") == {}


class SnapshotsVanish(TieringClient):
    """A client before whose first acquires newer snapshots replace the planned ones."""

    def __init__(self, target: str, table: TableInfo, times: int) -> None:
        super().__init__(target)
        self._table = table
        self._times = times
        self.planned: list[dict[TableBucket, int]] = []

    def acquire_lease(self, lease_id, duration_ms, snapshots, *, allow_empty=False) -> AcquiredLease:
        self.planned.append(dict(snapshots))
        if self._times > 0:
            self._times -= 1
            ids = range(1000 + self._times * 50, 1050 + self._times * 50)
            new = pa.table({"id": ids, "name": ["new"] * len(ids)}, schema=SCHEMA)
            list(self.write_rows(self._table.path, WriteKind.UPSERT, [new]))
            taken = self.take_kv_snapshots([self._table.path])
            # The collector of old snapshots may not have run yet. It removes those of all buckets that got rows.
            for vanishing in {each.bucket for each in taken[self._table.table_id]} & snapshots.keys():
                while self._exists(vanishing, snapshots[vanishing]):
                    """The collector runs all the time."""
        return super().acquire_lease(lease_id, duration_ms, snapshots, allow_empty=allow_empty)

    def _exists(self, bucket: TableBucket, snapshot_id: int) -> bool:
        try:
            self.kv_snapshot_metadata([(bucket, snapshot_id)])
        except FlussTieringError:
            return False
        return True


@pytest.fixture
def collecting(tmp_path: Path):
    """A server that removes old snapshots all the time."""
    with ServerThread(tmp_path / "data", kv_snapshot_interval=20, kv_snapshot_num_retained=1) as running:
        yield running


def test_a_vanished_snapshot_is_planned_again_from_the_latest(
    collecting: ServerThread, caplog: pytest.LogCaptureFixture
) -> None:  # L6, L7
    with TieringClient(collecting.target) as client:
        table = new_table(client, [1])
    with SnapshotsVanish(collecting.target, table, times=1) as client, caplog.at_level(logging.WARNING):
        acquired = lease_latest_snapshots(client, "X", [table.path], HOUR)
        assert acquired.unavailable_snapshots == {}
        assert pinned(client, "X") == client.planned[1] != client.planned[0]
        (bucket, gone), *_ = client.planned[0].items()
        assert client.kv_snapshot_metadata(list(pinned(client, "X").items()))
    (record,) = [each for each in caplog.records if each.name == "fluss_tiering.client.leasing"]
    assert f"snapshot {gone} of {bucket}" in record.getMessage()
    assert "lease_id=X" in record.getMessage()


class PinsWithoutLooking(SnapshotsVanish):
    """A server that leases snapshots that do not exist and calls them available, as Fluss 0.9.1 does."""

    def acquire_lease(self, lease_id, duration_ms, snapshots, *, allow_empty=False) -> AcquiredLease:
        return replace(
            super().acquire_lease(lease_id, duration_ms, snapshots, allow_empty=allow_empty), unavailable_snapshots={}
        )


def test_what_was_leased_is_proven_to_exist(collecting: ServerThread) -> None:  # L6, L7, upstream 2512
    with TieringClient(collecting.target) as client:
        table = new_table(client, range(20), num_buckets=2)
    with PinsWithoutLooking(collecting.target, table, times=1) as client:
        lease_latest_snapshots(client, "X", [table.path], HOUR)
        assert len(client.planned) == 2
        assert len(client.kv_snapshot_metadata(list(pinned(client, "X").items()))) == 2


def test_snapshots_that_keep_vanishing_end_the_round_which_leases_nothing(  # L7, D17
    collecting: ServerThread,
) -> None:
    with TieringClient(collecting.target) as client:
        table, other = new_table(client, [1]), new_table(client, [1])
    with SnapshotsVanish(collecting.target, table, times=100) as client:
        with refused(ErrorCode.KV_SNAPSHOT_NOT_EXIST, str(TableBucket(table.table_id, 0))):
            lease_latest_snapshots(client, "X", [other.path, table.path], HOUR)
        assert len(client.planned) == 3
        assert client.list_leases() == []
