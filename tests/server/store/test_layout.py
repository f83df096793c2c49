"""The layout of the database, made at once and told from others, and offsets of a lake snapshot as one value."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest
import sqlalchemy as sa
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


def columns_of(location: Path | str) -> dict[str, dict[str, tuple[str, bool]]]:
    """Return the type of each column, and whether it may be NULL, by the table and its name."""
    database = open_database(location)
    found = sa.MetaData()
    found.reflect(database.engine)
    database.engine.dispose()
    return {
        name: {column.name: (str(column.type), bool(column.nullable)) for column in table.columns}
        for name, table in found.tables.items()
    }


def back_to_the_first_layout(location: Path | str) -> None:
    execute(
        location,
        "ALTER TABLE tiering_rounds DROP COLUMN partitions",
        "UPDATE alembic_version SET version_num = '0009'",
    )


def test_a_new_database_has_the_columns_that_the_code_uses(store_location: Path | str) -> None:
    SqlTieringStore.open(store_location).close()
    found = columns_of(store_location)
    for name, table in schema.metadata.tables.items():
        assert list(found[name]) == list(table.columns.keys())


def test_a_database_of_the_first_layout_is_migrated(store_location: Path | str) -> None:
    SqlTieringStore.open(store_location).close()
    new = columns_of(store_location)
    back_to_the_first_layout(store_location)
    assert columns_of(store_location) != new
    SqlTieringStore.open(store_location).close()
    assert columns_of(store_location) == new
    SqlTieringStore.open_to_read(store_location).close()


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
    SqlTieringStore.open(store_location).close()
    back_to_the_first_layout(store_location)
    before = columns_of(store_location)
    with monkeypatch.context() as wrong:
        wrong.setitem(
            layout._STEPS, layout.HEAD, (*layout._STEPS[layout.HEAD], "ALTER TABLE nowhere ADD COLUMN x TEXT")
        )
        with pytest.raises(FlussTieringError, match="nowhere"):
            SqlTieringStore.open(store_location)
    assert columns_of(store_location) == before, "not stamped, half migrated"
    SqlTieringStore.open(store_location).close()


def test_a_new_database_that_cannot_be_made_stays_empty(
    store_location: Path | str, monkeypatch: pytest.MonkeyPatch
) -> None:  # S24
    with monkeypatch.context() as taken:
        taken.setattr(layout, "_VERSION", schema.server_meta)
        with pytest.raises(FlussTieringError):
            SqlTieringStore.open(store_location)
    assert not columns_of(store_location)
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
