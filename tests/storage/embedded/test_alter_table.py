"""Changes of a table's options (S20)."""

import os
from pathlib import Path

import pytest
from embedded_tables import PATH, end_offsets, kv_rows, kv_table, log_rows, log_table, opened, read_rows
from refusals import refused

from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.table import TablePath, WriteKind

FRESHNESS = "table.datalake.freshness"


def test_options_change_and_rows_stay(tmp_path: Path) -> None:  # S20
    with opened(tmp_path) as storage:
        before = storage.create_table(PATH, kv_table(properties={FRESHNESS: "1h", "team": "a"}))
        storage.write(PATH, WriteKind.UPSERT, kv_rows([{"id": 1, "name": "x"}]))
        altered = storage.alter_table(PATH, {FRESHNESS: "1min"})
        assert altered.descriptor.properties == {FRESHNESS: "1min"}
        assert (altered.table_id, altered.created_time) == (before.table_id, before.created_time)
        storage.write(PATH, WriteKind.UPSERT, kv_rows([{"id": 2, "name": "y"}]))
        rows = read_rows(storage)
    with opened(tmp_path) as storage:
        assert storage.table(PATH) == storage.table_by_id(before.table_id) == storage.tables()[0] == altered
        assert read_rows(storage) == rows
        assert end_offsets(storage) == [2]


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"table.log.arrow.compression.type": "NONE"}, ("table.log.arrow.compression.type", "rows are stored")),
        (
            {"iceberg.write.target-file-size-bytes": "100"},
            ("iceberg.write.target-file-size-bytes", "in the lake; if there is none yet"),
        ),
    ],
)
def test_what_rows_or_the_lake_table_were_made_with_stays(
    tmp_path: Path, properties: dict[str, str], words: tuple[str, ...]
) -> None:  # S20
    with opened(tmp_path) as storage:
        created = storage.create_table(PATH, log_table())
        with refused(ErrorCode.INVALID_TABLE, *words):
            storage.alter_table(PATH, properties)
        assert storage.table(PATH) == created
        given = storage.create_table(TablePath("db", "given"), log_table(properties=properties))
        with refused(ErrorCode.INVALID_TABLE, *words):
            storage.alter_table(given.path, {})
        storage.alter_table(given.path, {**properties, "team": "a"})


def test_a_table_without_a_primary_key_gets_no_kind_of_deletes(tmp_path: Path) -> None:
    option = "table.datalake.delete-files"
    with opened(tmp_path) as storage:
        created = storage.create_table(PATH, log_table())
        with refused(ErrorCode.INVALID_TABLE, option, "without a primary key", "leave it out"):
            storage.alter_table(PATH, {option: "position"})
        assert storage.table(PATH) == created
        keyed = storage.create_table(TablePath("db", "keyed"), kv_table())
        assert storage.alter_table(keyed.path, {option: "position"}).descriptor.properties == {option: "position"}


def test_a_table_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with opened(tmp_path) as storage, refused(ErrorCode.TABLE_NOT_EXIST, str(PATH)):
        storage.alter_table(PATH, {})


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_change_that_cannot_be_written_did_not_happen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:  # S24
    with opened(tmp_path) as storage:
        created = storage.create_table(PATH, log_table())

        def fail(*_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(*((os, "fsync") if failing == "fsync" else (Path, "replace")), fail)
            with refused(ErrorCode.STORAGE, "No space left"):
                storage.alter_table(PATH, {FRESHNESS: "1min"})
        assert storage.table(PATH) == created
        storage.write(PATH, WriteKind.APPEND, log_rows(0, 1))
    with opened(tmp_path) as storage:
        assert storage.table(PATH) == created
