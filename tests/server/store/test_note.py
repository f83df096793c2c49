"""A data folder knows which kind of database it was used with, and no server begins with a new one in silence."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from engine_support import ServerThread, new_table
from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.tiering import Claim
from fluss_tiering.server.backends.embedded.adoption import adopt_data_dir
from fluss_tiering.server.core.store.note import DATABASE_FILE, NOTE_FILE, StoreKind, check_kind
from fluss_tiering.storage.data_dir import DataDir, read_data_dir_id
from postgres_support import Postgres

SQLITE: dict[str, Any] = {}


def used(folder: Path, settings: dict[str, Any]) -> None:
    """Serve the folder, with a table whose first round was claimed."""
    with ServerThread(folder, **settings) as running, TieringClient(running.target) as client:
        table = new_table(client, [1, 2])
        token = client.acquire_lease("X", 3_600_000, {}, allow_empty=True).attempt_token
        (claim,) = client.claim_tables([table.path], "X", token, "driver")
        assert isinstance(claim, Claim)


def epochs(folder: Path, settings: dict[str, Any]) -> list[int]:
    with ServerThread(folder, **settings) as running, TieringClient(running.target) as client:
        return [each.tiering_epoch for each in client.list_tiering_statuses()]


def refused(folder: Path, settings: dict[str, Any], *words: str) -> None:
    before = sorted(path.name for path in folder.iterdir())
    with pytest.raises(FlussTieringError) as error, ServerThread(folder, **settings):
        """Does not start."""
    assert error.value.code is ErrorCode.INVALID_REQUEST
    for word in (*words, str(folder), "begin anew", "fluss-tiering adopt"):
        assert word in error.value.message
    assert "PASSWORD" not in error.value.message
    assert sorted(path.name for path in folder.iterdir()) == before, "nothing was made"


def forget_note(folder: Path) -> None:
    """Leave the folder as a release left it that wrote no note."""
    (folder / NOTE_FILE).unlink()


@pytest.fixture(params=["with the note", "older release"])
def forget(request: pytest.FixtureRequest) -> Any:
    return forget_note if request.param == "older release" else lambda folder: None


@pytest.mark.postgres
@pytest.mark.sampled(1)
def test_a_folder_of_postgresql_is_not_served_with_sqlite(tmp_path: Path, postgres_url: str, forget: Any) -> None:
    settings = {"store_url": postgres_url}
    used(tmp_path / "data", settings)
    forget(tmp_path / "data")
    refused(tmp_path / "data", SQLITE, "set store-url", "FLUSS_TIERING_STORE_URL", "--store sqlite")
    assert epochs(tmp_path / "data", settings) == [1]
    assert json.loads((tmp_path / "data" / NOTE_FILE).read_bytes()) == {"store": "postgresql"}


@pytest.mark.postgres
@pytest.mark.sampled(1)
def test_a_folder_of_sqlite_is_not_served_with_a_new_postgresql(tmp_path: Path, postgres_url: str, forget: Any) -> None:
    used(tmp_path / "data", SQLITE)
    forget(tmp_path / "data")
    refused(tmp_path / "data", {"store_url": postgres_url}, "leave out the setting store-url", "--store postgresql")
    assert epochs(tmp_path / "data", SQLITE) == [1]
    assert json.loads((tmp_path / "data" / NOTE_FILE).read_bytes()) == {"store": "sqlite"}


@pytest.mark.postgres
@pytest.mark.sampled(1)
def test_a_new_postgresql_in_the_place_of_the_right_one_is_refused(
    tmp_path: Path, postgres: Postgres, postgres_url: str, forget: Any
) -> None:
    settings = {"store_url": postgres_url}
    used(tmp_path / "data", settings)
    forget(tmp_path / "data")
    refused(tmp_path / "data", {"store_url": postgres.new_database()}, "has no state")
    assert epochs(tmp_path / "data", settings) == [1]


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_folder_whose_sqlite_file_is_gone_is_refused_until_it_is_adopted(tmp_path: Path, forget: Any) -> None:
    used(tmp_path / "data", SQLITE)
    for file in (tmp_path / "data").glob(f"{DATABASE_FILE}*"):
        file.unlink()
    forget(tmp_path / "data")
    refused(tmp_path / "data", SQLITE, f"has no {DATABASE_FILE}", "restore the file")
    adopt_data_dir(tmp_path / "data", StoreKind.SQLITE)
    assert epochs(tmp_path / "data", SQLITE) == [0]
    # It was allowed once.
    (tmp_path / "data" / DATABASE_FILE).unlink()
    refused(tmp_path / "data", SQLITE, f"has no {DATABASE_FILE}")


@pytest.mark.postgres
def test_an_adopted_folder_begins_with_the_other_kind_on_purpose(tmp_path: Path, postgres_url: str) -> None:
    settings = {"store_url": postgres_url}
    used(tmp_path / "data", SQLITE)
    adopt_data_dir(tmp_path / "data")
    refused(tmp_path / "data", settings, "leave out")
    adopt_data_dir(tmp_path / "data", StoreKind.POSTGRESQL)
    refused(tmp_path / "data", SQLITE, "set store-url")
    assert epochs(tmp_path / "data", settings) == [0]
    refused(tmp_path / "data", SQLITE, "set store-url")
    # The SQLite file is still there, and as old as the change.
    adopt_data_dir(tmp_path / "data", StoreKind.SQLITE)
    assert epochs(tmp_path / "data", SQLITE) == [1]


@pytest.mark.postgres
def test_older_folders_go_on_with_the_postgresql_that_knows_them(tmp_path: Path, postgres_url: str) -> None:
    # Such a folder may still have the SQLite file of a first try.
    settings = {"store_url": postgres_url}
    used(tmp_path / "data", settings)
    forget_note(tmp_path / "data")
    (tmp_path / "data" / DATABASE_FILE).write_bytes(b"")
    assert epochs(tmp_path / "data", settings) == [1]
    refused(tmp_path / "data", SQLITE, "set store-url")


@pytest.mark.postgres
def test_a_standby_server_is_refused_at_its_start(tmp_path: Path, postgres_url: str, postgres: Postgres) -> None:
    settings = {"store_url": postgres_url}
    used(tmp_path / "data", settings)
    note = tmp_path / "data" / NOTE_FILE
    with ServerThread(tmp_path / "data", **settings) as running:
        with ServerThread(tmp_path / "data", **settings) as waiting:
            assert not waiting.server.is_active
        right = note.read_bytes()
        note.write_text('{"store": "sqlite"}')
        refused(tmp_path / "data", settings, "leave out the setting store-url")
        note.write_bytes(right)
        assert running.server.is_active


@pytest.mark.postgres
def test_a_copy_of_folder_and_postgresql_is_served_after_both_were_adopted(
    tmp_path: Path, postgres: Postgres, postgres_url: str
) -> None:
    # The steps of the page about backups.
    used(tmp_path / "data", {"store_url": postgres_url})
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    copied = postgres.copy_database(postgres_url)
    adopt_data_dir(tmp_path / "copy")
    with (
        pytest.raises(FlussTieringError, match="belongs to the storage at"),
        ServerThread(tmp_path / "copy", store_url=copied),
    ):
        """Does not start."""
    new_id = read_data_dir_id(tmp_path / "copy")
    postgres.execute(f"UPDATE bound_storage SET storage_id = '{new_id}', location = '{tmp_path / 'copy'}'", copied)
    assert epochs(tmp_path / "copy", {"store_url": copied}) == [1]
    assert epochs(tmp_path / "data", {"store_url": postgres_url}) == [1]


def test_a_folder_that_was_never_used_begins_with_either(tmp_path: Path) -> None:
    for kind in StoreKind:
        check_kind(tmp_path / "missing", kind)
    # A start that was cut off before its database had a layout.
    DataDir.open(tmp_path / "data").close()
    (tmp_path / "data" / DATABASE_FILE).write_bytes(b"")
    assert epochs(tmp_path / "data", SQLITE) == []


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("content", ["", "[]", "{}", '{"store": "oracle"}', '{"store": "sqlite", "may_be_new": 1}'])
def test_a_damaged_note_is_refused_and_can_be_written_anew(tmp_path: Path, content: str) -> None:
    used(tmp_path / "data", SQLITE)
    (tmp_path / "data" / NOTE_FILE).write_text(content)
    with pytest.raises(FlussTieringError, match=r"adopt .* --store") as error, ServerThread(tmp_path / "data"):
        """Does not start."""
    assert error.value.code is ErrorCode.CORRUPT_DATA
    adopt_data_dir(tmp_path / "data", StoreKind.SQLITE)
    assert epochs(tmp_path / "data", SQLITE) == [1]


def test_only_the_user_of_the_server_reads_a_new_folder_and_others_keep_their_mode(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir(mode=0o755)
    for folder, mode in (("parent/new", 0o700), ("made", 0o755)):
        with ServerThread(tmp_path / folder):
            assert (tmp_path / folder).stat().st_mode & 0o777 == mode
    assert (tmp_path / "parent").stat().st_mode & 0o777 == 0o755
