"""Data folders that were copied or moved: a server refuses them until they are adopted."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from engine_support import ServerThread, new_table
from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo
from fluss_tiering.server.backends.embedded.adoption import adopt_data_dir
from fluss_tiering.storage.data_dir import read_data_dir_id


def used_folder(folder: Path) -> TableInfo:
    """Make a data folder with a table, and a lake table as a round would leave it in the catalog."""
    with ServerThread(folder) as server, TieringClient(server.target) as client:
        table = new_table(client, [1, 2, 3])
    location = f"file:{folder}/lake/warehouse/db/orders/metadata/1.metadata.json"
    with closing(sqlite3.connect(folder / "lake" / "catalog.db")) as connection, connection:
        connection.execute(
            "CREATE TABLE iceberg_tables (catalog_name, table_namespace, table_name, metadata_location, "
            "previous_metadata_location, iceberg_type)"
        )
        connection.execute(
            "INSERT INTO iceberg_tables VALUES ('fluss_lake', 'db', 'orders', ?, NULL, 'TABLE')", [location]
        )
    return table


def serves(folder: Path, table: TableInfo) -> None:
    with ServerThread(folder) as server, TieringClient(server.target) as client:
        assert client.list_tables() == [client.get_tables([table.path])[0]]
        assert client.describe_storage().data_dir == str(folder)


def refused(folder: Path, *words: str) -> None:
    with pytest.raises(FlussTieringError) as error, ServerThread(folder):
        pass
    assert error.value.code is ErrorCode.INVALID_REQUEST
    for word in words:
        assert word in error.value.message


@pytest.mark.parametrize("name", ["a#b", "a?b", "a%20b", "a\nb"])
@pytest.mark.sampled(2)
def test_a_path_that_means_something_in_addresses_is_refused_with_the_default_lake(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    for _ in range(2):
        with pytest.raises(FlussTieringError, match="means something in the addresses") as error, ServerThread(folder):
            pass
        assert error.value.code is ErrorCode.INVALID_REQUEST
        assert not folder.exists()
    # The files of another catalog lie elsewhere.
    with ServerThread(tmp_path / f"{name}2", lake_catalog={"type": "rest", "uri": "http://lake"}):
        pass


def test_a_moved_folder_is_refused_until_its_path_leads_to_it(tmp_path: Path) -> None:  # D23
    old, new = tmp_path / "old", tmp_path / "new"
    table = used_folder(old)
    before = read_data_dir_id(old)
    shutil.move(old, new)
    refused(new, "was moved or copied from", f"ln -s {new} {old}")
    old.symlink_to(new)
    assert adopt_data_dir(new).original is None
    assert read_data_dir_id(new) == before
    serves(new, table)


def test_a_copy_with_a_lake_is_refused_beside_its_original(tmp_path: Path) -> None:  # D23
    old, new = tmp_path / "old", tmp_path / "new"
    table = used_folder(old)
    shutil.copytree(old, new)
    refused(new, "rounds would write into the lake of", str(old))
    with pytest.raises(FlussTieringError, match="rounds would write into the lake of") as error:
        adopt_data_dir(new)
    assert error.value.code is ErrorCode.INVALID_REQUEST
    assert read_data_dir_id(new) == read_data_dir_id(old), "nothing was changed"
    serves(old, table)


def test_a_moved_folder_without_lake_tables_of_its_own_is_served(tmp_path: Path) -> None:  # D23
    with ServerThread(tmp_path / "old") as server, TieringClient(server.target) as client:
        table = new_table(client, [1])
    shutil.move(tmp_path / "old", tmp_path / "new")
    serves(tmp_path / "new", table)
    identity = json.loads((tmp_path / "new" / "data-dir.json").read_bytes())
    assert identity["path"] == str(tmp_path / "new")


def test_a_copy_that_tiers_into_a_catalog_of_the_settings_is_refused_until_it_is_adopted(tmp_path: Path) -> None:  # D23
    catalog = {"lake_catalog": {"type": "rest", "uri": "http://127.0.0.1:1"}}
    with ServerThread(tmp_path / "old", **catalog) as server, TieringClient(server.target) as client:
        new_table(client, [1])
    shutil.copytree(tmp_path / "old", tmp_path / "new")
    with pytest.raises(FlussTieringError, match="is a copy of"), ServerThread(tmp_path / "new", **catalog):
        pass
    done = adopt_data_dir(tmp_path / "new")
    assert done.original == tmp_path / "old"
    assert done.data_dir_id == read_data_dir_id(tmp_path / "new") != read_data_dir_id(tmp_path / "old")
    for name in ("new", "old"):
        with ServerThread(tmp_path / name, **catalog) as server, TieringClient(server.target) as client:
            assert len(client.list_tables()) == 1


def test_a_folder_is_served_under_another_name_of_it(tmp_path: Path) -> None:  # D23
    table = used_folder(tmp_path / "data")
    (tmp_path / "link").symlink_to(tmp_path / "data")
    serves(tmp_path / "link", table)
    serves(tmp_path / "data", table)


def test_an_interrupted_adoption_is_run_again(tmp_path: Path) -> None:  # D23
    old, new = tmp_path / "old", tmp_path / "new"
    with ServerThread(old) as server, TieringClient(server.target) as client:
        table = new_table(client, [1])
    shutil.copytree(old, new)
    identity = (new / "data-dir.json").read_bytes()
    adopt_data_dir(new)
    adopted = read_data_dir_id(new)
    # The identity file is changed last.
    (new / "data-dir.json").write_bytes(identity)
    adopt_data_dir(new)
    assert read_data_dir_id(new) == adopted
    serves(new, table)


def test_what_is_served_or_no_data_folder_cannot_be_adopted(tmp_path: Path) -> None:  # D23
    with pytest.raises(FlussTieringError, match="no data folder") as error:
        adopt_data_dir(tmp_path)
    assert error.value.code is ErrorCode.INVALID_REQUEST
    assert list(tmp_path.iterdir()) == []
    with ServerThread(tmp_path / "data"), pytest.raises(FlussTieringError) as error:
        adopt_data_dir(tmp_path / "data")
    assert error.value.code is ErrorCode.DATA_DIR_IN_USE
