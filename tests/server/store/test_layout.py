"""The layout of the database, made at once and told from others, and offsets of a lake snapshot as one value."""

from __future__ import annotations

import zlib
from pathlib import Path
from unittest.mock import Mock

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from cases import cases
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket
from fluss_tiering.server.core.store import layout, schema
from fluss_tiering.server.core.store.records import PackedOffsets
from fluss_tiering.server.core.store.store import SqlTieringStore, open_database


def execute(location: Path | str, *statements: str) -> None:
    database = open_database(location)
    with database.engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    database.engine.dispose()


def differences(location: Path | str) -> list[object]:
    database = open_database(location)
    with database.engine.connect() as connection:
        found = compare_metadata(MigrationContext.configure(connection), schema.metadata)
    database.engine.dispose()
    return found


def test_migrations_lead_to_the_layout_that_the_code_uses(store_location: Path | str) -> None:
    SqlTieringStore.open(store_location).close()
    assert differences(store_location) == []


def test_a_database_of_the_first_layout_is_migrated(store_location: Path | str) -> None:
    SqlTieringStore.open(store_location).close()
    execute(
        store_location,
        "ALTER TABLE tiering_rounds DROP COLUMN partitions",
        "UPDATE alembic_version SET version_num = '0009'",
    )
    SqlTieringStore.open(store_location).close()
    assert differences(store_location) == []


def test_the_head_is_the_newest_migration() -> None:
    scripts = ScriptDirectory(str(layout._SCRIPTS))
    assert scripts.get_heads() == [layout.HEAD]
    assert {script.revision for script in scripts.walk_revisions()} == layout._KNOWN


@pytest.mark.parametrize("revision", ["9999", "0008"])
def test_an_unknown_layout_is_refused(store_location: Path | str, revision: str) -> None:
    SqlTieringStore.open(store_location).close()
    execute(store_location, f"UPDATE alembic_version SET version_num = '{revision}'")
    for open_it in (SqlTieringStore.open, SqlTieringStore.open_to_read):
        with pytest.raises(FlussTieringError, match=f"layout {revision}") as refused:
            open_it(store_location)
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


# S24
def test_a_migration_that_fails_changes_nothing(store_location: Path | str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as full:
        full.setattr(command, "upgrade", Mock(side_effect=FlussTieringError(ErrorCode.STORAGE, "the disk is full")))
        with pytest.raises(FlussTieringError, match="the disk is full"):
            SqlTieringStore.open(store_location)
    database = open_database(store_location)
    assert not sa.inspect(database.engine).get_table_names(), "not stamped, half migrated"
    database.engine.dispose()
    SqlTieringStore.open(store_location).close()


def test_a_database_without_a_server_is_not_read(store_location: Path | str) -> None:  # S28
    with refused(ErrorCode.UNAVAILABLE, "no server yet"):
        SqlTieringStore.open_to_read(store_location)


BUCKETS = st.builds(TableBucket, st.just(7), st.integers(0, (1 << 31) - 1), st.none() | st.integers(0, (1 << 63) - 1))


@given(st.dictionaries(BUCKETS, st.integers(-1, (1 << 63) - 1)))
def test_offsets_come_back_as_they_were_packed(offsets: dict[TableBucket, int]) -> None:  # S24
    assert PackedOffsets.of(offsets).unpack(7) == offsets


def test_packed_offsets_keep_their_form() -> None:
    packed = PackedOffsets(
        b"\x01" + zlib.compress(b"\xff" * 8 + b"\x05" + b"\0" * 7 + b"\x02\0\0\0\x01\0\0\0" + (b"\x03" + b"\0" * 7) * 2)
    )
    assert packed.unpack(7) == {TableBucket(7, 2): 3, TableBucket(7, 1, 5): 3}


@cases("data", [b"", b"\x02", b"\x01", b"\x01junk", b"\x01" + zlib.compress(b"123")])
def test_what_no_server_packed_is_told(data: bytes) -> None:
    with refused(ErrorCode.CORRUPT_DATA, "table 7"):
        PackedOffsets(data).unpack(7)
