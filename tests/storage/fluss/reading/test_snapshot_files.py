"""The files of a KV snapshot that the cluster names: whatever is wrong with one is an error that says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from refusals import refused

from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.table import KvSnapshot, TableBucket, TablePath
from fluss_tiering.storage.fluss.reading.kv_snapshot_reader import KvSnapshotReader
from fluss_tiering.storage.fluss.reading.remote_files import RemoteFiles
from fluss_tiering.storage.fluss.rpc.calls.kv import KvSnapshotFiles


class Client:
    """A cluster whose snapshot has a file of this name."""

    def __init__(self, name: str, path: Path) -> None:
        self._files = KvSnapshotFiles(0, {name: str(path)})

    def call(self, *_: Any, **__: Any) -> KvSnapshotFiles:
        return self._files


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "../a"])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x")
    client: Any = Client(name, file)
    reader = KvSnapshotReader(
        client, RemoteFiles(), TablePath("shop", "orders"), KvSnapshot(TableBucket(1, 0), 3, 4, 1, 1, "")
    )
    with refused(ErrorCode.CORRUPT_DATA, "no plain name"):
        list(reader.entries(None, None, 1 << 20))


def test_a_disk_that_takes_no_copy_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x")
    with refused(ErrorCode.STORAGE, "could not copy a remote file to /dev/full"):
        RemoteFiles().copy(str(file), Path("/dev/full"))
    with pytest.raises(FileNotFoundError):
        RemoteFiles().copy(str(tmp_path / "missing"), tmp_path / "copy")
