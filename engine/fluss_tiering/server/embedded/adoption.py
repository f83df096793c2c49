"""Adopting a data folder that was moved or copied: its lake and its database are made to belong to the new place.

The metadata of the default lake names every file by its absolute path. Without an adoption, rounds of a copied folder
would write into the lake of the original.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path

from fluss_tiering.lake.relocation import CATALOG_FILE, Relocation, named_lake_folder, relocate_lake
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.embedded.catalog import LAKE_FOLDER, require_plain_path
from fluss_tiering.server.store.note import DATABASE_FILE, StoreKind, StoreNote
from fluss_tiering.server.store.store import SqlTieringStore
from fluss_tiering.storage.data_dir import DataDir, not_adopted, read_data_dir_id


@dataclass(frozen=True, slots=True)
class Adoption:
    """What an adoption did.

    Attributes:
        root: The data folder.
        data_dir_id: The id of the data folder from now on.
        original: The folder that this one is a copy of; None if it was moved.
        lake: What was changed in the default lake; None if nothing was.
    """

    root: Path
    data_dir_id: str
    original: Path | None
    lake: Relocation | None

    @property
    def lake_catalog(self) -> Path:
        """The file with the catalog of the default lake. There is none if the folder has no such lake."""
        return _lake_catalog(self.root)


def check_lake_is_own(lake_dir: Path) -> None:
    """Check that the default lake names its own folder.

    Raises:
        FlussTieringError: INVALID_REQUEST if it names another; CORRUPT_DATA if its catalog cannot be read.
    """
    named = named_lake_folder(lake_dir)
    if named is not None:
        raise not_adopted(
            lake_dir.absolute().parent,
            f"was moved or copied from {named.parent}, whose paths its lake still has",
            f"the folder as {named.parent}",
        )


def adopt_data_dir(root: Path, store: StoreKind | None = None) -> Adoption:
    """Let a data folder that was moved or copied stand on its own. No server may use it meanwhile.

    A copy gets an id of its own, because readers find a data folder by its id. An adoption that was interrupted is
    simply run again.

    Args:
        root: The data folder.
        store: The kind of database that the folder is used with from now on, and which may be a new one; None to
            leave it at the one that it was used with.

    Raises:
        FlussTieringError: INVALID_REQUEST if it is no data folder, if its path cannot be an address, or if a lake table
            cannot be moved; DATA_DIR_IN_USE if a server uses the folder; CORRUPT_DATA if a file is damaged; STORAGE if
            a file cannot be written.
    """
    root = root.absolute()
    if read_data_dir_id(root) is None:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"{root} is no data folder: expected a folder that a tiering server has used; check the path",
        )
    if _lake_catalog(root).exists():
        require_plain_path(root / LAKE_FOLDER)
    folder = DataDir.open(root, adopt=True)
    try:
        named = named_lake_folder(root / LAKE_FOLDER)
        original = folder.original()
        if original is None and named is not None and read_data_dir_id(named.parent) == folder.id:
            # The folder is from a release that did not record its place.
            original = named.parent
        # The same in each try of an adoption, so that the database may already have it.
        data_dir_id = folder.id if original is None else str(uuid.uuid5(uuid.NAMESPACE_URL, f"{folder.id}{root}"))
        try:
            lake = relocate_lake(root / LAKE_FOLDER)
        except OSError as error:
            raise FlussTieringError(
                ErrorCode.STORAGE, f"could not change the lake of {root}: {error}; then adopt it again"
            ) from error
        _rename_in_database(root, folder.id, data_dir_id)
        folder.settle(data_dir_id)
        if store is not None:
            StoreNote(store, may_be_new=True).write(root)
        return Adoption(root, data_dir_id, original, lake)
    finally:
        folder.close()


def _lake_catalog(root: Path) -> Path:
    return root / LAKE_FOLDER / CATALOG_FILE


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
