"""The storage as callers see it: tables that they may not see do not exist."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from fluss_tiering.model.cluster import ClusterHealth
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import (
    BucketInfo,
    KvSnapshot,
    StorageDescription,
    TableBucket,
    TableDescriptor,
    TableInfo,
    TablePath,
    WriteKind,
)
from fluss_tiering.model.table_options import LAKE_CATALOG_PREFIX, LAKE_TABLE_PREFIX
from fluss_tiering.server.edge.callers.identity import caller
from fluss_tiering.server.edge.callers.roles import Role
from fluss_tiering.server.edge.callers.scope import is_hidden, present_scope, scope_of
from fluss_tiering.storage.protocol import KvScan, SplitReader, TableStorage


class VisibleStorage:
    """A `TableStorage` for the calls of clients. Each method looks at the tables that the caller may see.

    For a table that the caller may not see, each method does what it does for one that does not exist.

    Args:
        storage: The tables.
    """

    def __init__(self, storage: TableStorage) -> None:
        self._storage = storage

    def describe(self) -> StorageDescription:
        """See `TableStorage`."""
        return self._storage.describe()

    def cluster_health(self) -> ClusterHealth | None:
        """See `TableStorage`."""
        return self._storage.cluster_health()

    def create_table(self, path: TablePath, descriptor: TableDescriptor) -> TableInfo:
        """See `TableStorage`, and `require_creatable`."""
        require_creatable(path)
        return self._storage.create_table(path, descriptor)

    def alter_table(self, path: TablePath, properties: Mapping[str, str]) -> TableInfo:
        """See `TableStorage`."""
        self._require(path)
        return self._storage.alter_table(path, properties)

    def drop_table(self, path: TablePath) -> TableInfo:
        """See `TableStorage`."""
        self._require(path)
        return self._storage.drop_table(path)

    def drop_partition(self, path: TablePath, values: Sequence[str]) -> None:
        """See `TableStorage`."""
        self._require(path)
        self._storage.drop_partition(path, values)

    def table(self, path: TablePath) -> TableInfo:
        """See `TableStorage`."""
        self._require(path)
        return self._storage.table(path)

    def table_by_id(self, table_id: int) -> TableInfo:
        """See `TableStorage`."""
        table = self._storage.table_by_id(table_id)
        if is_hidden(table.path):
            raise self._storage.no_such_table(table_id)
        return table

    def no_such_table(self, which: TablePath | int) -> FlussTieringError:
        """See `TableStorage`."""
        return self._storage.no_such_table(which)

    def tables(self) -> Sequence[TableInfo]:
        """See `TableStorage`."""
        scope, tables = present_scope(), self._storage.tables()
        return tables if scope is None else [table for table in tables if scope.shows(table.path)]

    def unusable_tables(self, known: Collection[TablePath] = ()) -> Collection[TablePath]:
        """See `TableStorage`."""
        return [path for path in self._storage.unusable_tables(known) if not is_hidden(path)]

    def write(self, path: TablePath, kind: WriteKind, rows: pa.Table) -> Mapping[TableBucket, int]:
        """See `TableStorage`."""
        self._require(path)
        return self._storage.write(path, kind, rows)

    def buckets(self, path: TablePath, *, wait_for_leaders: bool = True) -> Sequence[BucketInfo]:
        """See `TableStorage`."""
        self._require(path)
        return self._storage.buckets(path, wait_for_leaders=wait_for_leaders)

    def take_kv_snapshots(
        self, path: TablePath, buckets: Collection[TableBucket] | None = None
    ) -> Sequence[KvSnapshot]:
        """See `TableStorage`."""
        self._require(path)
        return self._storage.take_kv_snapshots(path, buckets)

    def kv_snapshot(self, bucket: TableBucket, snapshot_id: int) -> KvSnapshot | None:
        """See `TableStorage`."""
        try:
            self._require_id(bucket.table_id)
        except FlussTieringError as error:
            if error.code is not ErrorCode.TABLE_NOT_EXIST:
                raise
            return None
        return self._storage.kv_snapshot(bucket, snapshot_id)

    def collectable_kv_snapshots(self, path: TablePath) -> Sequence[tuple[TableBucket, int]]:
        """See `TableStorage`."""
        self._require(path)
        return self._storage.collectable_kv_snapshots(path)

    def delete_kv_snapshots(self, snapshots: Collection[tuple[TableBucket, int]]) -> int:
        """See `TableStorage`."""
        for table_id in {bucket.table_id for bucket, _ in snapshots}:
            self._require_id(table_id)
        return self._storage.delete_kv_snapshots(snapshots)

    def reader(self) -> SplitReader:
        """Refuse: a reader of the storage's own files looks at no scope, and no call of a client needs one."""
        raise NotImplementedError

    def fetch_log(self, bucket: TableBucket, start_offset: int, end_offset: int) -> Iterator[bytes]:
        """See `TableStorage`."""
        self._require_id(bucket.table_id)
        return self._storage.fetch_log(bucket, start_offset, end_offset)

    def fetch_kv_snapshot(
        self, bucket: TableBucket, snapshot_id: int, from_key: bytes | None, to_key: bytes | None
    ) -> Iterator[pa.RecordBatch]:
        """See `TableStorage`."""
        self._require_id(bucket.table_id)
        return self._storage.fetch_kv_snapshot(bucket, snapshot_id, from_key, to_key)

    def open_kv_scan(
        self, bucket: TableBucket, *, admit: Callable[[], None], on_lost: Callable[[], None]
    ) -> tuple[int, KvScan | None]:
        """See `TableStorage`."""
        self._require_id(bucket.table_id)
        return self._storage.open_kv_scan(bucket, admit=admit, on_lost=on_lost)

    def write_lake_offsets(self, table_id: int, log_end_offsets: Mapping[TableBucket, int]) -> str:
        """See `TableStorage`."""
        self._require_id(table_id)
        return self._storage.write_lake_offsets(table_id, log_end_offsets)

    def has_lake_offsets(self, table_id: int, path: str) -> bool:
        """See `TableStorage`."""
        self._require_id(table_id)
        return self._storage.has_lake_offsets(table_id, path)

    def delete_lake_offsets(self, table_id: int, registered: str, kept: Collection[str]) -> int:
        """See `TableStorage`."""
        self._require_id(table_id)
        return self._storage.delete_lake_offsets(table_id, registered, kept)

    def close(self) -> None:
        """Refuse: no call of a client closes the storage."""
        raise NotImplementedError

    def _require(self, path: TablePath) -> None:
        require_visible(self._storage, path)

    def _require_id(self, table_id: int) -> None:
        """Raise TABLE_NOT_EXIST if the caller may not see the table, or if it sees some tables only and this is none.

        Both are answered here, because the storage may answer in another way for a table that does not exist.
        """
        if present_scope() is not None:
            self.table_by_id(table_id)


def require_creatable(path: TablePath) -> None:
    """Check that the caller may create a table at a path.

    Raises:
        FlussTieringError: AUTHORIZATION if the caller has the role for other tables only, whether or not there is a
            table at the path.
    """
    if is_hidden(path):
        raise FlussTieringError(
            ErrorCode.AUTHORIZATION,
            f"{caller().name} may not create table {path}: its role is for other tables only; ask an "
            "administrator of the server for it",
        )


def require_options(path: TablePath, keys: Iterable[str]) -> None:
    """Check that the caller may set or reset options of a table.

    An option of the lake catalog decides with whom a driver speaks, which classes it loads, and where it sends the
    credentials of the server's catalog. The driver is somebody else's, with rights for other tables.

    Raises:
        FlussTieringError: AUTHORIZATION if one of the options is about the catalog, about a path or about a class, and
            the caller is not an administrator of all tables.
    """
    if caller().has_for_all(Role.ADMIN):
        return
    for key in sorted(keys):
        in_lake = key.startswith(LAKE_TABLE_PREFIX) and key.lower().endswith(("path", "location", "impl"))
        if key.startswith(LAKE_CATALOG_PREFIX) or in_lake:
            raise FlussTieringError(
                ErrorCode.AUTHORIZATION,
                f"{caller().name} may not set or reset {key} of table {path}: the option decides where the drivers of "
                "others write and what they load, so it takes the role admin for all tables; leave the option out, or "
                "ask an administrator of the server for it",
            )


def require_visible(storage: TableStorage, path: TablePath) -> None:
    """Check that the caller has the role of the call for a table.

    Raises:
        FlussTieringError: TABLE_NOT_EXIST if not, whether or not there is a table at the path; AUTHORIZATION if the
            caller may read the table, whose existence is no secret then.
    """
    if not is_hidden(path):
        return
    reads = scope_of(caller().grants, Role.READER)
    if reads is None or reads.shows(path):
        raise FlussTieringError(
            ErrorCode.AUTHORIZATION,
            f"{caller().name} may read table {path}, and may not do this with it: its role for this call is for other "
            "tables only; ask an administrator of the server for it",
        )
    raise storage.no_such_table(path)
