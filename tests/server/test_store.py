"""The database itself: foreign files and other layouts are refused, and commits are synced."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.store import schema
from fluss_tiering.server.store.store import SqlTieringStore


def test_a_foreign_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "server.db"
    file.write_bytes(b"this is no database " * 500)
    with pytest.raises(FlussTieringError) as refused:
        SqlTieringStore.open(file)
    assert refused.value.code is ErrorCode.CORRUPT_DATA
    assert str(file) in refused.value.message
    assert file.read_bytes() == b"this is no database " * 500


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(FlussTieringError) as refused:
        SqlTieringStore.open(tmp_path / "missing" / "server.db")
    assert refused.value.code is ErrorCode.STORAGE
    assert str(tmp_path / "missing") in refused.value.message


def test_the_layout_of_a_newer_server_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "server.db"
    SqlTieringStore.open(file).close()
    engine = sa.create_engine(f"sqlite:///{file}")
    with engine.begin() as connection:
        connection.execute(sa.update(schema.server_meta).values(value=schema.SCHEMA_VERSION + 1))
    with pytest.raises(FlussTieringError) as refused:
        SqlTieringStore.open(file)
    assert f"version {schema.SCHEMA_VERSION + 1}" in refused.value.message


def test_commits_are_synced_to_the_disk(tmp_path: Path) -> None:  # L10
    store = SqlTieringStore.open(tmp_path / "server.db")
    with store._engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
    store.close()


def test_a_transaction_that_raises_is_undone(tmp_path: Path) -> None:  # L10
    store = SqlTieringStore.open(tmp_path / "server.db")

    def write_and_raise() -> None:
        with store.transaction() as transaction:
            transaction.put_attempt_token(7)
            raise KeyError

    with pytest.raises(KeyError):
        write_and_raise()
    assert store.attempt_token() == 0
    store.close()
