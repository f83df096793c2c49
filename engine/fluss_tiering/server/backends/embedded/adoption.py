"""Adopting a data folder that was copied, or that is to be used with another database from now on."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.backends.embedded.catalog import LAKE_FOLDER, check_lake_is_own
from fluss_tiering.server.core.store.note import DATABASE_FILE, StoreKind, StoreNote
from fluss_tiering.server.core.store.store import SqlTieringStore
from fluss_tiering.storage.data_dir import DataDir, read_data_dir_id


@dataclass(frozen=True, slots=True)
class Adoption:
    """What an adoption did.

    Attributes:
        data_dir_id: The id of the data folder from now on.
        original: The folder that this one is a copy of; None if it was moved.
    """

    root: Path
    data_dir_id: str
    original: Path | None


def adopt_data_dir(root: Path, store: StoreKind | None = None) -> Adoption:
    """Let a data folder that was copied stand on its own. No server may use it meanwhile.

    A copy gets an id of its own, because readers find a data folder by its id. An adoption that was interrupted is
    simply run again.

    Args:
        store: The kind of database that the folder is used with from now on, and which may be a new one; None to
            leave it at the one that it was used with.

    Raises:
        FlussTieringError: INVALID_REQUEST if it is no data folder, or if it has a default lake with the paths of
            another folder; DATA_DIR_IN_USE if a server uses the folder; CORRUPT_DATA if a file is damaged; STORAGE if
            a file cannot be written.
    """
    root = root.absolute()
    if read_data_dir_id(root) is None:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"{root} is no data folder: expected a folder that a tiering server has used; check the path",
        )
    folder = DataDir.open(root, adopt=True)
    try:
        check_lake_is_own(root / LAKE_FOLDER)
        original = folder.original()
        # The same in each try of an adoption, so that the database may already have it.
        data_dir_id = folder.id if original is None else str(uuid.uuid5(uuid.NAMESPACE_URL, f"{folder.id}{root}"))
        _rename_in_database(root, folder.id, data_dir_id)
        folder.settle(data_dir_id)
        if store is not None:
            StoreNote(store, may_be_new=True).write(root)
        return Adoption(root, data_dir_id, original)
    finally:
        folder.close()


def _rename_in_database(root: Path, before: str, data_dir_id: str) -> None:
    file = root / DATABASE_FILE
    if not file.is_file():
        return
    store = SqlTieringStore.open(file)
    try:
        with store.transaction() as transaction:
            transaction.rename_bound_storage(before, data_dir_id, str(root))
    finally:
        store.close()
