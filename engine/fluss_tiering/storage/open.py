"""Picks the reader for a storage: its files where they are on this machine, else the server's streams."""

from __future__ import annotations

from pathlib import Path

from fluss_tiering.model.table import StorageDescription
from fluss_tiering.storage.embedded.data_dir import read_data_dir_id
from fluss_tiering.storage.embedded.reader import EmbeddedSplitReader
from fluss_tiering.storage.protocol import SplitReader


def open_split_reader(description: StorageDescription, target: str) -> SplitReader:
    """A reader of the splits that a server plans.

    Args:
        description: what the server says of its storage. Its files are read directly when the path leads to the very
            same data folder here, which the folder's id tells.
        target: "host:port" of the server, for when it does not.
    """
    if description.data_dir and read_data_dir_id(Path(description.data_dir)) == description.data_dir_id:
        return EmbeddedSplitReader(Path(description.data_dir))
    # The client takes a worker longer to load than a small piece takes to read.
    from fluss_tiering.client.client import TieringClient  # noqa: PLC0415
    from fluss_tiering.storage.remote import RemoteSplitReader  # noqa: PLC0415

    return RemoteSplitReader(TieringClient(target))
