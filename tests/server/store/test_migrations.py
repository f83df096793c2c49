"""The layout of the database: made by migrations from the first release's on, told from newer and broken ones."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake import LakeSnapshot
from fluss_tiering.model.table import TableBucket
from fluss_tiering.model.tiering import TieringState
from fluss_tiering.server.core.store import layout, schema
from fluss_tiering.server.core.store.store import SqlTieringStore, open_database

FIRST_RELEASE = Path(__file__).with_name("first_release.sql")


def execute(location: Path | str, *statements: str) -> None:
    database = open_database(location)
    with database.engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    database.engine.dispose()


@pytest.fixture
def first_release(tmp_path: Path) -> Path:
    """A database that the first release's own code made; it knew SQLite alone."""
    file = tmp_path / "server.db"
    with closing(sqlite3.connect(file)) as made:
        made.executescript(FIRST_RELEASE.read_text())
    return file


def differences(location: Path | str) -> list[object]:
    database = open_database(location)
    with database.engine.connect() as connection:
        found = compare_metadata(MigrationContext.configure(connection), schema.metadata)
    database.engine.dispose()
    return found


def test_migrations_lead_to_the_layout_that_the_code_uses(store_location: Path | str) -> None:
    SqlTieringStore.open(store_location).close()
    assert differences(store_location) == []


def test_the_head_is_the_newest_migration() -> None:
    scripts = ScriptDirectory(str(layout._SCRIPTS))
    assert scripts.get_heads() == [layout.HEAD]
    assert {script.revision for script in scripts.walk_revisions()} == layout._KNOWN


def test_a_database_of_the_first_release_is_taken_over(first_release: Path) -> None:  # S3, S24
    store = SqlTieringStore.open(first_release)
    (status,) = store.statuses()
    assert (status.tiering_epoch, status.state) == (7, TieringState.TIERING)
    assert [each.tiering_epoch for each in store.running_rounds()] == [7]
    assert (status.interruptions, [each.interrupted for each in store.running_rounds()]) == (0, [False])
    assert store.attempt_token() == 3
    assert [lease.lease_id for lease in store.leases()] == ["X"]
    assert store.lake_snapshots()[0].unpack() == LakeSnapshot(1, 42, {TableBucket(1, 0): 100})
    store.close()
    assert differences(first_release) == []
    SqlTieringStore.open(first_release).close()


def test_rows_of_offsets_are_packed(store_location: Path | str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as before:
        before.setattr(layout, "HEAD", "0004")
        # The check expects the tables of the present layout.
        before.setattr(layout, "check_layout", lambda database: None)
        SqlTieringStore.open(store_location).close()
    columns = "(commit_order, table_id, snapshot_id, tiering_epoch, commit_id, offsets_path, committed_time)"
    # Enough of them that they are written in several parts; the last one has no offsets.
    snapshots = [(order, order % 7, order << 32, order, f"c{order}", "/p", order) for order in range(1, 452)]
    rows = [
        (order, partition_id, bucket, (order << 33) + bucket)
        for order, table_id, *_ in snapshots[:-1]
        for partition_id in ((5, 1 << 40) if table_id == 3 else (-1,))
        for bucket in range(order % 3 + 1)
    ]
    execute(
        store_location,
        *(f"INSERT INTO lake_snapshots {columns} VALUES {each}" for each in snapshots),
        *(f"INSERT INTO lake_snapshot_offsets VALUES {each}" for each in rows),
    )
    expected: dict[int, dict[TableBucket, int]] = {order: {} for order, *_ in snapshots}
    for order, partition_id, bucket, offset in rows:
        of_table = TableBucket(order % 7, bucket, None if partition_id == -1 else partition_id)
        expected[order][of_table] = offset
    store = SqlTieringStore.open(store_location)
    for order, table_id, snapshot_id, *_ in snapshots:
        committed = store.lake_snapshot(table_id, snapshot_id)
        assert committed is not None
        assert committed.unpack() == LakeSnapshot(table_id, snapshot_id, expected[order])
        assert (committed.tiering_epoch, committed.commit_id, committed.committed_time) == (order, f"c{order}", order)
    assert sorted(each.snapshot_id >> 32 for each in store.lake_snapshots()) == list(range(445, 452))
    store.close()
    assert differences(store_location) == []


def test_a_table_that_fails_does_so_since_its_last_known_failure(  # E30
    store_location: Path | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr(layout, "HEAD", "0007")
        SqlTieringStore.open(store_location).close()
    columns = (
        "table_id, database_name, table_name, state, state_since, tiering_epoch, last_error_time, consecutive_failures"
    )
    rows = [(1, "db", "bad", "Pending", 9, 2, 7, 2), (2, "db", "stopped", "Failed", 9, 2, 8, 0)]
    execute(store_location, *(f"INSERT INTO tiering_statuses ({columns}) VALUES {each}" for each in rows))
    store = SqlTieringStore.open(store_location)
    assert {each.path.table: each.failing_since for each in store.statuses()} == {"bad": 7, "stopped": None}
    store.close()
    assert differences(store_location) == []


def test_a_newer_layout_is_refused(store_location: Path | str) -> None:
    SqlTieringStore.open(store_location).close()
    execute(store_location, "UPDATE alembic_version SET version_num = '9999'")
    for open_it in (SqlTieringStore.open, SqlTieringStore.open_to_read):
        with pytest.raises(FlussTieringError, match="version 9999") as refused:
            open_it(store_location)
        assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_a_newer_layout_of_the_first_kind_is_refused(first_release: Path) -> None:
    execute(first_release, "UPDATE server_meta SET value = 3 WHERE name = 'schema_version'")
    with pytest.raises(FlussTieringError, match="version 3") as refused:
        SqlTieringStore.open(first_release)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("table", ["tiering_statuses", "alembic_version", "leased_snapshots"])
def test_what_was_dropped_by_hand_is_not_made_anew(store_location: Path | str, table: str) -> None:  # S3
    SqlTieringStore.open(store_location).close()
    execute(store_location, f"DROP TABLE {table}")
    with pytest.raises(FlussTieringError, match=table) as refused:
        SqlTieringStore.open(store_location)
    assert refused.value.code is ErrorCode.CORRUPT_DATA
    database = open_database(store_location)
    assert not sa.inspect(database.engine).has_table(table)
    database.engine.dispose()


def test_a_migration_that_fails_changes_nothing(first_release: Path) -> None:
    execute(first_release, "CREATE TABLE bound_storage (in_the_way INTEGER)")
    with pytest.raises(FlussTieringError):
        SqlTieringStore.open(first_release)
    execute(first_release, "DROP TABLE bound_storage")
    database = open_database(first_release)
    assert not sa.inspect(database.engine).has_table("alembic_version"), "not stamped, half migrated"
    database.engine.dispose()
    SqlTieringStore.open(first_release).close()


def test_a_database_without_a_server_is_not_read(store_location: Path | str) -> None:  # S28
    with pytest.raises(FlussTieringError, match="no server yet") as refused:
        SqlTieringStore.open_to_read(store_location)
    assert refused.value.code is ErrorCode.UNAVAILABLE
