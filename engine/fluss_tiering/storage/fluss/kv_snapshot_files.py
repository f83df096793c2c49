"""The files of a cluster's KV snapshots, put together into a RocksDB that is read and removed again."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pyarrow as pa

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import KvSnapshot, TablePath
from fluss_tiering.storage.fluss.calls.kv_snapshots import KvSnapshotFiles, kv_snapshot_files
from fluss_tiering.storage.fluss.client import FlussClient
from fluss_tiering.storage.fluss.kv_snapshot_cuts import measure_files
from fluss_tiering.storage.fluss.remote_files import RemoteFiles
from fluss_tiering.storage.patience import Patience
from fluss_tiering.storage.rocksdb_files import entries, folder_of_ones_own

_TABLE_FILE: Final = ".sst"
_COPIES_AT_ONCE: Final = 4
_REMEDY: Final = "start the round again with the bucket's latest snapshot"


class SnapshotFiles:
    """One KV snapshot of a cluster.

    Args:
        client: of the cluster.
        files: of its remote folder.
        path: of the table.
        snapshot: of one of its buckets.
    """

    def __init__(self, client: FlussClient, files: RemoteFiles, path: TablePath, snapshot: KvSnapshot) -> None:
        self._client = client
        self._files = files
        self._snapshot = snapshot
        self._name = f"KV snapshot {snapshot.snapshot_id} of {snapshot.bucket} ({path})"

    def entries(self, from_key: bytes | None, to_key: bytes | None, chunk_bytes: int) -> Iterator[pa.RecordBatch]:
        """The entries of the key range [from_key, to_key), as `rocksdb_files.entries` has them.

        Raises:
            FlussTieringError: KV_SNAPSHOT_NOT_EXIST, CORRUPT_DATA naming bucket and file, STORAGE, UNAVAILABLE.
        """
        with self.folder() as folder, self._telling_damage():
            yield from entries(folder, from_key, to_key, chunk_bytes)

    def measured(self) -> KvSnapshot:
        """The snapshot with its size, and keys at which it may be cut. Raises as `entries`."""
        wanted = self._metadata()
        table_files = [path for name, path in wanted.files.items() if name.endswith(_TABLE_FILE)]
        with self._telling_missing():
            size, keys = measure_files(self._files, table_files)
        rows = self._snapshot.row_count if table_files else 0
        return replace(self._snapshot, row_count=rows, size_bytes=size, split_keys=keys)

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """A folder with the snapshot's files, which goes with the block. Raises as `entries`."""
        wanted = self._metadata()
        with folder_of_ones_own() as folder:
            with self._telling_missing():
                self._gather(wanted, folder)
            yield folder

    def corrupt(self, error: FlussTieringError) -> FlussTieringError:
        """CORRUPT_DATA for an entry that is no row."""
        return self._damaged(f"it has an entry that cannot be read: {error.message}")

    def _metadata(self) -> KvSnapshotFiles:
        patience = Patience()
        while True:
            try:
                return self._client.call(kv_snapshot_files(self._snapshot.bucket, self._snapshot.snapshot_id))
            except FlussTieringError as error:
                if error.code is ErrorCode.KV_SNAPSHOT_NOT_EXIST:
                    raise FlussTieringError(
                        error.code, f"{self._name} does not exist: expected one that a lease protects; {_REMEDY}"
                    ) from error
                patience.wait_after(error)

    def _gather(self, wanted: KvSnapshotFiles, folder: Path) -> None:
        elsewhere: list[tuple[str, Path]] = []
        for name, path in wanted.files.items():
            if Path(name).name != name:
                raise self._damaged(f"it names a file {name!r}, which is no plain name")
            local = self._files.local(path)
            if local is None:
                elsewhere.append((path, folder / name))
            elif not local.is_file():
                raise FileNotFoundError(path)
            else:
                (folder / name).symlink_to(local)
        if elsewhere:
            with ThreadPoolExecutor(_COPIES_AT_ONCE, thread_name_prefix="fluss-kv-snapshot") as threads:
                for _ in threads.map(lambda pair: self._files.copy(*pair), elsewhere):
                    pass

    @contextmanager
    def _telling_missing(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            self._metadata()  # raises for a snapshot that was deleted meanwhile
            raise self._damaged(f"{error} is missing") from None

    @contextmanager
    def _telling_damage(self) -> Iterator[None]:
        try:
            yield
        except FlussTieringError:
            raise
        except Exception as error:
            self._metadata()  # raises for a snapshot that was deleted meanwhile
            raise self._damaged(f"its files cannot be read: {error}") from error

    def _damaged(self, what: str) -> FlussTieringError:
        return FlussTieringError(ErrorCode.CORRUPT_DATA, f"{self._name} is damaged: {what}; {_REMEDY}")
