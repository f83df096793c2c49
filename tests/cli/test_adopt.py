"""What `fluss-tiering adopt` says of a data folder that was moved or copied."""

from __future__ import annotations

import shutil

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from fluss_tiering.server.core.store.note import StoreKind, StoreNote
from fluss_tiering.storage.data_dir import DataDir


@pytest.mark.parametrize("folder", ["", "nowhere"])
def test_a_folder_that_is_none_is_not_adopted(command, tmp_path, monkeypatch, folder):
    monkeypatch.chdir(tmp_path)
    assert command("adopt", folder).refuses(2, f"{folder!r} is no folder")


def test_adopt_says_which_database_a_folder_has_from_now_on(command, tmp_path):
    assert command("adopt", tmp_path, "--store", "sqlite").refuses(2, "is no data folder")
    DataDir.open(tmp_path).close()
    assert "uses postgresql from now on" in command("adopt", tmp_path, "--store", "postgresql").out
    assert StoreNote.read(tmp_path) == StoreNote(StoreKind.POSTGRESQL, may_be_new=True)
    assert command("adopt", tmp_path, "--store", "postgresql://db/tiering").refuses(2, "sqlite")


def test_a_copy_with_a_lake_is_refused(command, tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    DataDir.open(old).close()
    (old / "lake").mkdir()
    catalog = SqlCatalog("fluss_lake", uri=f"sqlite:///{old}/lake/catalog.db", warehouse=f"{old}/lake/warehouse")
    catalog.create_namespace("db")
    catalog.create_table("db.orders", pa.schema({"id": pa.int64()}))
    catalog.engine.dispose()
    shutil.copytree(old, new)
    assert command("adopt", new).refuses(2, "was moved or copied from")
    assert "stands on its own now" in command("adopt", old).out


def test_a_database_that_there_is_not_is_told_in_words(command, tmp_path):
    told = "Invalid value for '--store': Value error, 'mysql' is not one of 'sqlite', 'postgresql'"
    assert command("adopt", tmp_path, "--store", "mysql").refuses(2, told)
