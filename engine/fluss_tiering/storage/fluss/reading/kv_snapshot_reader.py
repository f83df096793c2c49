"""Reading a cluster's KV snapshots: their files are put together to a temporary RocksDB, which is read and removed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

import pyarrow as pa

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import KvSnapshot, TablePath
from fluss_tiering.storage.files import temporary_folder
from fluss_tiering.storage.fluss.reading.remote_files import RemoteFiles
from fluss_tiering.storage.fluss.reading.split_keys import measure_files
from fluss_tiering.storage.fluss.rpc.calls.kv import KvSnapshotFiles, kv_snapshot_files
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from fluss_tiering.storage.reading import RetryBackoff
from fluss_tiering.storage.rocksdb_files import SNAPSHOT_FILES, entries, table_files

_TABLE_FILE: Final = ".sst"
_THREADS: Final = 4
_REMEDY: Final = "start the round again with the bucket's latest snapshot"

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class KvSnapshotReader:
    """Reads one KV snapshot of a cluster.

    Args:
        files: The files of the cluster's remote folder.
        snapshot: The snapshot of one of the table's buckets.
    """

    def __init__(self, client: FlussClient, files: RemoteFiles, path: TablePath, snapshot: KvSnapshot) -> None:
        self._client = client
        self._files = files
        self._snapshot = snapshot
        self._name = f"KV snapshot {snapshot.snapshot_id} of {snapshot.bucket} ({path})"

    def entries(self, from_key: bytes | None, to_key: bytes | None, chunk_bytes: int) -> Iterator[pa.RecordBatch]:
        """Yield the entries of the key range [from_key, to_key), as `rocksdb_files.entries` does.

        Raises:
            FlussTieringError: KV_SNAPSHOT_NOT_EXIST if there is no such snapshot; CORRUPT_DATA if a file is missing or
                damaged; STORAGE if a file cannot be read; UNAVAILABLE if the cluster cannot be reached.
        """
        with self._folder(from_key, to_key) as (folder, partial), self._reporting_damage():
            yield from entries(folder, from_key, to_key, chunk_bytes, partial=partial)

    def measured(self) -> KvSnapshot:
        """Return the snapshot with its size and with keys at which it can be split. Errors are those of `entries`."""
        wanted = self._metadata()
        table_paths = [path for name, path in wanted.files.items() if name.endswith(_TABLE_FILE)]
        with self._reporting_missing_files():
            size, keys = measure_files(self._files, table_paths)
        rows = self._snapshot.row_count if table_paths else 0
        return replace(self._snapshot, row_count=rows, size_bytes=size, split_keys=keys)

    @contextmanager
    def _folder(self, from_key: bytes | None, to_key: bytes | None) -> Iterator[tuple[Path, bool]]:
        """Make a temporary folder with the files that hold a key range; tell whether other files are missing in it."""
        wanted = self._metadata()
        with temporary_folder(SNAPSHOT_FILES) as folder:
            with self._reporting_missing_files():
                elsewhere = self._link(wanted, folder)
                partial = bool(elsewhere) and (from_key is not None or to_key is not None)
                if partial:
                    elsewhere = self._fetch_listing(elsewhere, folder)
                    with self._reporting_damage():
                        held = {file.name for file in table_files(folder) if file.may_hold(from_key, to_key)}
                    elsewhere = {name: path for name, path in elsewhere.items() if name in held}
                self._fetch(elsewhere, folder)
            yield folder, partial

    def corrupt(self, error: FlussTieringError) -> FlussTieringError:
        """Return CORRUPT_DATA for an entry that is no row."""
        return self._damaged(f"it has an entry that cannot be read: {error.message}")

    def _metadata(self) -> KvSnapshotFiles:
        backoff = RetryBackoff()
        while True:
            try:
                return self._client.call(kv_snapshot_files(self._snapshot.bucket, self._snapshot.snapshot_id))
            except FlussTieringError as error:
                if error.code is ErrorCode.KV_SNAPSHOT_NOT_EXIST:
                    raise FlussTieringError(
                        error.code, f"{self._name} does not exist: expected one that a lease protects; {_REMEDY}"
                    ) from error
                backoff.wait_after(error)

    def _link(self, wanted: KvSnapshotFiles, folder: Path) -> dict[str, str]:
        """Link the files that are on this machine, and return the others as name -> path."""
        elsewhere: dict[str, str] = {}
        for name, path in wanted.files.items():
            if name in {"", ".."} or Path(name).name != name:
                raise self._damaged(f"it names a file {name!r}, which is no plain name")
            local = self._files.local(path)
            if local is None:
                elsewhere[name] = path
            elif not local.is_file():
                raise FileNotFoundError(path)
            else:
                (folder / name).symlink_to(local)
        return elsewhere

    def _fetch_listing(self, elsewhere: Mapping[str, str], folder: Path) -> dict[str, str]:
        """Fetch the files that tell which table file holds which keys, and make stand-ins for the table files.

        Return the table files as name -> path.
        """
        table_paths = {name: path for name, path in elsewhere.items() if name.endswith(_TABLE_FILE)}
        self._fetch({name: path for name, path in elsewhere.items() if name not in table_paths}, folder)
        for name, size in zip(table_paths, self._each(self._files.size, table_paths.values()), strict=True):
            with (folder / name).open("xb") as stand_in:
                stand_in.truncate(size)
        return table_paths

    def _fetch(self, wanted: Mapping[str, str], folder: Path) -> None:
        self._each(lambda named: self._files.copy(named[1], folder / named[0]), wanted.items())

    @staticmethod
    def _each(function: Callable[[ItemT], ResultT], items: Iterable[ItemT]) -> list[ResultT]:
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="fluss-kv-snapshot") as threads:
            return list(threads.map(function, items))

    @contextmanager
    def _reporting_missing_files(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            self._metadata()  # Raises an error if the snapshot was deleted in the meantime.
            raise self._damaged(f"{error} is missing") from None

    @contextmanager
    def _reporting_damage(self) -> Iterator[None]:
        try:
            yield
        except FlussTieringError:
            raise
        except Exception as error:
            self._metadata()  # Raises an error if the snapshot was deleted in the meantime.
            raise self._damaged(f"its files cannot be read: {error}") from error

    def _damaged(self, what: str) -> FlussTieringError:
        return FlussTieringError(ErrorCode.CORRUPT_DATA, f"{self._name} is damaged: {what}; {_REMEDY}")
