"""The database itself, on SQLite and PostgreSQL: what is refused, what is synced, what comes back as it was written."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from refusals import refused

from cases import cases
from engine_support import table_info
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake import LakeSnapshot
from fluss_tiering.model.table import TableBucket
from fluss_tiering.model.tiering import (
    KvSnapshotLease,
    RoundOrigin,
    TieringRound,
    TieringState,
    TieringStats,
    TieringStatus,
)
from fluss_tiering.server.core.store.records import CommittedLakeSnapshot, LeaseAttempt, PackedOffsets
from fluss_tiering.server.core.store.store import SqlTieringStore
from fluss_tiering.server.settings.values import checked_store_url
from postgres_support import Postgres


@pytest.fixture
def open_store(store_location: Path | str) -> Iterator[Callable[[], SqlTieringStore]]:
    """Opens the test's database, again and again."""
    opened = []

    def open_it() -> SqlTieringStore:
        opened.append(SqlTieringStore.open(store_location))
        return opened[-1]

    yield open_it
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: Callable[[], SqlTieringStore]) -> SqlTieringStore:
    return open_store()


def execute(store: SqlTieringStore, statement: str) -> list[tuple]:
    with store._database.engine.begin() as connection:
        result = connection.exec_driver_sql(statement)
        return [tuple(row) for row in result] if result.returns_rows else []


LEASE = KvSnapshotLease("X", 1, 2, 3, {TableBucket(1, 0): 7, TableBucket(2, 5, 1 << 40): 1 << 40})
STATUS = TieringStatus(1, table_info(1).path, TieringState.PENDING, 5, 1 << 40, 9, "läuft 🚲 nicht", 10, 3, 11)
STATUS = replace(STATUS, failing_since=8)
ORIGIN = RoundOrigin("tier", "manual__2026-11-28T03:00:00+00:00", "shop.submit", 0, 2, "local-17", "http://h:4040")
ROUND = TieringRound(
    1,
    STATUS.path,
    4,
    TieringState.TIERED,
    "X",
    3,
    "d",
    1,
    2,
    "late",
    TieringStats(1 << 40, 2, 3, 1 << 60),
    origin=ORIGIN,
    waiting_since=7,
)


def test_everything_comes_back_as_it_was_written(open_store: Callable[[], SqlTieringStore]) -> None:  # S24, L11
    store = open_store()
    offsets = {TableBucket(1, 0): 3, TableBucket(1, 1): -1}
    committed = [
        CommittedLakeSnapshot(1, -5 << 40, PackedOffsets.of(offsets), 4, "c", "/p", 9),
        CommittedLakeSnapshot(1, -9 << 40, PackedOffsets.of({}), 5, "d", "/q", 10),
    ]
    attempt = LeaseAttempt("X", 1 << 40, 5, "stopped\nby hand")
    with store.transaction() as transaction:
        transaction.put_lease(LEASE)
        transaction.put_attempt(attempt)
        transaction.put_attempt_token(1 << 40)
        transaction.put_statuses([STATUS])
        transaction.put_rounds([ROUND, replace(ROUND, tiering_epoch=5, stats=None, state=TieringState.TIERING)])
        for each in committed:
            transaction.put_lake_snapshot(each)
    store.close()
    store = open_store()
    assert store.leases().sound == [LEASE]
    assert store.attempts() == [attempt]
    assert store.attempt_token() == 1 << 40
    assert store.statuses() == [STATUS]
    assert store.round(1, 4) == ROUND
    assert [each.tiering_epoch for each in store.running_rounds()] == [5]
    assert store.lake_snapshots() == committed[1:]
    assert store.lake_snapshot(1, -5 << 40) == committed[0]
    assert [each.unpack() for each in committed] == [LakeSnapshot(1, -5 << 40, offsets), LakeSnapshot(1, -9 << 40)]
    assert store.lake_snapshot(1, 6) is None
    with store.transaction() as transaction:
        transaction.delete_lease("X")
        transaction.delete_table(1)
    assert execute(store, "SELECT count(*) FROM leased_snapshots") == [(0,)]
    assert execute(store, "SELECT count(*) FROM lake_snapshots") == [(0,)]


def test_writing_again_replaces(store: SqlTieringStore) -> None:  # L2, L4
    changed = replace(LEASE, expiration_time=50, snapshots={TableBucket(1, 0): 8})
    failed = replace(STATUS, state=TieringState.FAILED)
    for lease, status in ((LEASE, STATUS), (changed, failed)):
        with store.transaction() as transaction:
            transaction.put_lease(lease)
            transaction.put_statuses([status])
            transaction.put_rounds([replace(ROUND, error=status.state.value)])
    with store.transaction() as transaction:
        transaction.put_lease_expirations({"X": 60, "unknown": 70})
    kept = {**LEASE.snapshots, **changed.snapshots}
    assert store.leases().sound == [replace(changed, expiration_time=60, snapshots=kept)]
    with store.transaction() as transaction:
        transaction.delete_leased_snapshots("X", LEASE.snapshots.keys() - changed.snapshots.keys())
        transaction.delete_leased_snapshots("X", [TableBucket(9, 9)])
    assert store.leases().sound == [replace(changed, expiration_time=60)]
    assert store.statuses() == [failed]
    assert [each.error for each in store.rounds_page(path=None, lease_id=None, limit=9).rounds] == ["Failed"]


def test_rounds_are_the_newest_of_each_table(store: SqlTieringStore) -> None:  # D5, S23
    paths = [table_info(1, name=name).path for name in ("a", "B", "b_", "C")]
    with store.transaction() as transaction:
        for table_id, path in enumerate(paths):
            transaction.put_statuses([replace(STATUS, table_id=table_id, path=path)])
            transaction.put_rounds([replace(ROUND, table_id=table_id, path=path, tiering_epoch=n) for n in range(1, 6)])
        transaction.prune_rounds({0, 1}, 3)
    newest = store.rounds_page(path=None, lease_id="X", limit=4).rounds
    assert [each.path for each in newest] == [
        path for table_id, path in enumerate(paths) for _ in range(3 if table_id in (0, 1) else 4)
    ]
    page = store.rounds_page(path=None, lease_id="X", limit=1, after=0, max_tables=2)
    assert [(each.table_id, each.tiering_epoch) for each in page.rounds] == [(1, 5), (2, 5)]
    assert page.next_after == 2
    for lease_id in ("X", None):
        last = store.rounds_page(path=None, lease_id=lease_id, limit=1, after=2, max_tables=2)
        assert ([each.table_id for each in last.rounds], last.next_after) == ([3], None)
        assert store.rounds_page(path=None, lease_id=lease_id, limit=1, after=3, max_tables=2).rounds == []
    assert [each.tiering_epoch for each in store.rounds_page(path=paths[0], lease_id=None, limit=9).rounds] == [5, 4, 3]
    assert store.rounds_page(path=None, lease_id="Y", limit=9).rounds == []


def test_of_a_dropped_table_the_outcomes_of_leases_are_kept(store: SqlTieringStore) -> None:  # D13, D15, S25
    with store.transaction() as transaction:
        transaction.put_statuses([STATUS, replace(STATUS, table_id=2)])
        for table_id in (1, 2):
            for epoch in range(1, 7):
                lease_id = "XY"[epoch % 2]
                transaction.put_rounds(
                    [replace(ROUND, table_id=table_id, lease_id=lease_id, tiering_epoch=epoch, end_time=epoch)]
                )
    assert store.dropped_tables() == {}
    with store.transaction() as transaction:
        transaction.delete_table(1)
    assert store.dropped_tables() == {1: 6}
    for lease_id, newest in (("X", 6), ("Y", 5)):
        kept = store.rounds_page(path=None, lease_id=lease_id, limit=9).rounds
        assert [each.tiering_epoch for each in kept if each.table_id == 1] == [newest]
    assert {each.table_id for each in store.rounds_page(path=None, lease_id=None, limit=9).rounds} == {2}
    with store.transaction() as transaction:
        transaction.delete_rounds([1])
    assert store.dropped_tables() == {}
    assert len(store.rounds_page(path=None, lease_id=None, limit=9).rounds) == 6


def test_a_text_with_nul_is_stored(store: SqlTieringStore) -> None:  # S10
    with store.transaction() as transaction:
        transaction.put_statuses([replace(STATUS, last_error="a\0b")])
    assert store.statuses()[0].last_error == "a\N{REPLACEMENT CHARACTER}b"


def test_a_transaction_that_raises_is_undone(store: SqlTieringStore) -> None:  # L10
    def write_and_raise() -> None:
        with store.transaction() as transaction:
            transaction.put_attempt_token(7)
            raise KeyError

    with pytest.raises(KeyError):
        write_and_raise()
    assert store.attempt_token() == 0


def test_commits_are_synced_to_the_disk(store: SqlTieringStore) -> None:  # L10
    if store._database.is_postgresql:
        assert execute(store, "SHOW synchronous_commit") == [("on",)]
    else:
        assert execute(store, "PRAGMA journal_mode") == [("wal",)]
        assert execute(store, "PRAGMA synchronous") == [(2,)]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("DELETE FROM kv_snapshot_leases WHERE lease_id = 'X'", "expiration time is missing"),
        ("DELETE FROM leased_snapshots WHERE lease_id = 'X'", "missing"),
        ("UPDATE kv_snapshot_leases SET expiration_time = 'soon' WHERE lease_id = 'X'", "soon"),
        ("UPDATE leased_snapshots SET snapshot_id = 'x7' WHERE lease_id = 'X'", "x7"),
    ],
)
def test_a_damaged_lease_does_not_hide_the_others(tmp_path: Path, damage: str, words: str) -> None:  # L11
    store = SqlTieringStore.open(tmp_path / "server.db")
    with store.transaction() as transaction:
        transaction.put_lease(LEASE)
        transaction.put_lease(replace(LEASE, lease_id="Y"))
    with closing(sqlite3.connect(tmp_path / "server.db")) as by_hand:  # checks no foreign keys
        by_hand.execute(damage)
        by_hand.commit()
    assert [lease.lease_id for lease in store.leases().sound] == ["Y"]
    assert words in store.leases().damaged["X"]
    damaged = store.leases().damaged
    with store.transaction() as transaction:
        for lease_id in damaged:
            transaction.delete_lease(lease_id)
    assert store.leases().damaged == {}
    store.close()


def test_a_row_that_no_server_wrote_is_named(store: SqlTieringStore) -> None:
    with store.transaction() as transaction:
        transaction.put_statuses([STATUS])
    execute(store, "UPDATE tiering_statuses SET state = 'Sleeping'")
    with refused(ErrorCode.CORRUPT_DATA, "Sleeping"):
        store.statuses()


def test_a_database_belongs_to_one_storage(open_store: Callable[[], SqlTieringStore]) -> None:
    open_store().bind("id-1", "/data/one")
    store = open_store()
    store.bind("id-1", "/moved")
    with refused(ErrorCode.INVALID_REQUEST, "belongs to the storage at /data/one"):
        store.bind("id-2", "/data/two")


def test_a_foreign_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "server.db"
    file.write_bytes(b"this is no database " * 500)
    with refused(ErrorCode.CORRUPT_DATA, str(file)):
        SqlTieringStore.open(file)
    assert file.read_bytes() == b"this is no database " * 500


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    with refused(ErrorCode.STORAGE, str(tmp_path / "missing")):
        SqlTieringStore.open(tmp_path / "missing" / "server.db")


@cases(
    "url",
    [
        "mysql://root:hunter2@h/d",
        "sqlite:////x.db",
        "nonsense",
        "",
        "postgresql+pg8000://h/d",
        "postgresql://u:hunter2@h:port/d",
    ],
)
def test_a_url_of_another_kind_is_refused(url: str) -> None:
    with pytest.raises(FlussTieringError, match="expected postgresql://") as refused:
        checked_store_url(url)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert "hunter2" not in refused.value.message


def test_an_at_sign_of_the_password_is_not_taken_for_the_host() -> None:
    with pytest.raises(FlussTieringError, match=r"more than one @ before the host: write an @ .* as %40") as refused:
        checked_store_url("postgresql://tier:S3cr@hunter2@h:1/d")
    assert "hunter2" not in refused.value.message
    assert checked_store_url("postgresql://tier:S3cr%40hunter2@h:1/d").password == "S3cr@hunter2"


def test_a_wrong_password_and_a_missing_database_are_told_apart(postgres: Postgres) -> None:
    url = postgres.new_database()
    missing = str(sa.make_url(url).set(database="nowhere").render_as_string(hide_password=False))
    with pytest.raises(FlussTieringError, match='database "nowhere" does not exist') as refused:
        SqlTieringStore.open(missing)
    assert refused.value.code is ErrorCode.UNAVAILABLE
    with postgres.asking_for_passwords():
        wrong = sa.make_url(url).set(password="hunter2").render_as_string(hide_password=False)
        with pytest.raises(FlussTieringError, match="password authentication failed") as refused:
            SqlTieringStore.open(wrong)
    assert refused.value.code is ErrorCode.UNAVAILABLE
    assert "hunter2" not in refused.value.message


def test_a_lost_connection_is_made_anew(postgres: Postgres, postgres_url: str) -> None:
    store = SqlTieringStore.open(postgres_url)

    def write_while_connections_drop() -> None:
        with store.transaction() as transaction:
            transaction.put_attempt_token(1)
            postgres.drop_connections(postgres_url)
            transaction.put_attempt_token(2)

    with refused(ErrorCode.UNAVAILABLE):
        write_while_connections_drop()
    assert store.attempt_token() == 0
    postgres.drop_connections(postgres_url)
    with store.transaction() as transaction:
        transaction.put_attempt_token(3)
    assert store.attempt_token() == 3
    store.close()
