"""A Fluss cluster as the storage of a tiering server."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import Final

import pyarrow as pa

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
    partition_name,
)
from fluss_tiering.storage.fluss.access import ClusterLink, s3_from_environment
from fluss_tiering.storage.fluss.buckets import ClusterBuckets
from fluss_tiering.storage.fluss.lake_offsets_files import is_offsets_file
from fluss_tiering.storage.fluss.reading.reader import FlussSplitReader
from fluss_tiering.storage.fluss.reading.remote_files import RemoteFiles
from fluss_tiering.storage.fluss.rpc.call import ServerKind
from fluss_tiering.storage.fluss.rpc.calls.cluster import metadata
from fluss_tiering.storage.fluss.rpc.calls.lake import prepare_lake_snapshot
from fluss_tiering.storage.fluss.rpc.calls.tables import (
    alter_table,
    create_database,
    create_table,
    database_created_time,
    drop_partition,
    drop_table,
    list_databases,
    list_tables,
)
from fluss_tiering.storage.fluss.rpc.client import ParallelCalls
from fluss_tiering.storage.fluss.scans import ClusterScans
from fluss_tiering.storage.fluss.table_cache import ClusterTableCache
from fluss_tiering.storage.fluss.writer import ClusterWriter
from fluss_tiering.storage.lake_rules import check_lake_rules
from fluss_tiering.storage.protocol import KvScan, TableStorage, without_primary_key

_KIND: Final = "fluss"
_DEFAULT_DATABASE: Final = "fluss"
_LEADERS_S: Final = 15.0
_LEADERS_STEP_S: Final = 0.05


class FlussStorage(TableStorage):
    """A `TableStorage` over the tables of a cluster.

    Attributes:
        link: The link to the cluster, which `close` ends.
        listed: The tables as they were last seen.
    """

    def __init__(self, link: ClusterLink, cluster_id: str) -> None:
        self.link = link
        self._files = RemoteFiles(s3_from_environment())
        self._client = link.client
        self._cluster_id = cluster_id
        self._calls = ParallelCalls()
        self.listed = ClusterTableCache(self._client, self._calls)
        self._buckets = ClusterBuckets(self._client, self._calls)
        # Writers may wait for hard-pressed buckets, and nobody else with them.
        self._writes = ParallelCalls()
        self._writer = ClusterWriter(self._client, self._writes)
        self._scans = ClusterScans(self._client, self._calls, self._files, self._buckets)

    @classmethod
    def open(cls, link: ClusterLink, *, within: float) -> FlussStorage:
        """Find out which cluster it is. Each call may take `within` seconds.

        Raises:
            FlussTieringError: UNAVAILABLE if the cluster cannot be reached; CORRUPT_DATA if the server is not a Fluss
                server.
            FlussServerError: The cluster refused the credentials, or the user may not describe the database `fluss`.
        """
        return cls(link, _cluster_id(link, within))

    def describe(self) -> StorageDescription:
        """Return the kind of the storage, the cluster's id and its addresses."""
        return StorageDescription(
            _KIND, "", self._cluster_id, version("fluss-tiering"), bootstrap_servers=self.link.bootstrap_servers
        )

    def create_table(self, path: TablePath, descriptor: TableDescriptor) -> TableInfo:
        """Create a table, and its database if it is missing, and wait until the buckets can be written to.

        Raises:
            FlussTieringError: TABLE_ALREADY_EXIST if there is one at this path; INVALID_TABLE if there cannot be such a
                table; LAKE_TABLE_MISMATCH if the lake has another table at this path.
        """
        descriptor = _with_bucket_key(descriptor)
        check_lake_rules(descriptor)
        no_database: FlussTieringError | None = None
        # This is checked before the call, since Fluss makes the lake table first and its error names only that one.
        if path.database not in self._client.call(list_databases()):
            no_database = self._make_database(path.database)
        elif path in self._client.call(list_tables(path.database)):
            raise FlussTieringError(
                ErrorCode.TABLE_ALREADY_EXIST,
                f"table {path} already exists in the Fluss cluster: drop it first, or choose another name",
            )
        try:
            self._client.call(create_table(path, descriptor))
        except FlussTieringError as error:
            if no_database is not None and error.code is ErrorCode.DATABASE_NOT_EXIST:
                raise no_database from None
            raise
        self.listed.invalidate(path)
        table = self.table(path)
        if not descriptor.partition_keys:
            self._wait_for_leaders(table)
        return table

    def alter_table(self, path: TablePath, properties: Mapping[str, str]) -> TableInfo:
        """Replace the options of a table; see `TableStorage`.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is no such table; INVALID_TABLE if the cluster does not allow an
                option to change; UNSUPPORTED_VERSION if it cannot alter tables.
        """
        before = self.table(path).descriptor
        check_lake_rules(replace(before, properties=dict(properties)))
        changes = {
            key: properties.get(key)
            for key in sorted(before.properties.keys() | properties.keys())
            if before.properties.get(key) != properties.get(key)
        }
        if changes:
            self._client.call(alter_table(path, changes))
            self.listed.invalidate(path)
        return self.table(path)

    def drop_table(self, path: TablePath) -> TableInfo:
        """Drop a table, whose files the cluster deletes later; see `TableStorage`."""
        self.listed.invalidate(path)
        table = self.table(path)
        self._client.call(drop_table(path))
        self.listed.invalidate(path)
        return table

    def drop_partition(self, path: TablePath, values: Sequence[str]) -> None:
        """Drop a partition, whose files the cluster deletes later; see `TableStorage`."""
        table = self.table(path)
        keys = table.descriptor.partition_keys
        if not keys or len(keys) != len(values):
            raise FlussTieringError(
                ErrorCode.PARTITION_NOT_EXIST,
                f"table {path} has no partition {partition_name(values)!r}: expected a value for each of its "
                f"partition keys ({', '.join(keys) or 'it has none'})",
            )
        self._client.call(drop_partition(path, dict(zip(keys, values, strict=True))))
        self._writer.forget_partitions(table.table_id)

    def table(self, path: TablePath) -> TableInfo:
        """Return the table at this path, as it was at most a second ago.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is none; INVALID_TABLE if it cannot be used here.
        """
        return self.listed.get(path)

    def table_by_id(self, table_id: int) -> TableInfo:
        """Return the table that has this id, as it was at most a second ago; see `TableStorage`."""
        return self.listed.get_by_id(table_id)

    def tables(self) -> Sequence[TableInfo]:
        """Return all tables that can be used, ordered by path, as they were at most a few seconds ago."""
        return self.listed.all()

    def unusable_tables(self, known: Collection[TablePath] = ()) -> Collection[TablePath]:
        """Return the paths of tables that cannot be used here, as of the last look; see `TableStorage`."""
        self.listed.look_at_unlisted(known)
        return self.listed.unusable().keys()

    def write(self, path: TablePath, kind: WriteKind, rows: pa.Table) -> Mapping[TableBucket, int]:
        """Write rows, and return the log end offset of each bucket that got some; see `ClusterWriter.write`."""
        table = self.table(path)
        try:
            return self._writer.write(table, kind, rows)
        except FlussTieringError as error:
            if error.code is not ErrorCode.INVALID_ROWS:
                raise
            # Others may have added a column just now. Nothing was written yet.
            present = self.listed.look_again(path)
            if present.schema_id == table.schema_id:
                raise
            return self._writer.write(present, kind, rows)

    def buckets(self, path: TablePath, *, wait_for_leaders: bool = True) -> Sequence[BucketInfo]:
        """Return every bucket of every partition of a table; see `TableStorage`."""
        infos = self._buckets.infos(self.table(path), wait_for_leaders=wait_for_leaders)
        # Whoever asks for the table next gets a schema that has all columns of the rows up to these ends.
        self.listed.look_again(path)
        return infos

    def take_kv_snapshots(
        self, path: TablePath, buckets: Collection[TableBucket] | None = None
    ) -> Sequence[KvSnapshot]:
        """Return the latest KV snapshots, since a cluster takes them by itself; see `TableStorage`."""
        table = self.table(path)
        if not table.has_primary_key:
            raise without_primary_key(path, "KV snapshots")
        return [
            snapshot
            for partition in self._buckets.partitions(table)
            for snapshot in self._buckets.latest_kv_snapshots(table, partition).values()
            if buckets is None or snapshot.bucket in buckets
        ]

    def kv_snapshot(self, bucket: TableBucket, snapshot_id: int) -> KvSnapshot | None:
        """Return the KV snapshot that has this id, or None if it does not exist or exists no more."""
        return self._buckets.kv_snapshot(bucket, snapshot_id)

    def reader(self) -> FlussSplitReader:
        """Return a reader of the cluster's logs and KV snapshots."""
        return FlussSplitReader(self._client, self._files)

    def fetch_log(self, bucket: TableBucket, start_offset: int, end_offset: int) -> Iterator[bytes]:
        """Refuse with INVALID_REQUEST, since readers of a cluster fetch its logs themselves."""
        raise self._reads_itself(f"the log of {bucket} from {start_offset} to {end_offset}")

    def fetch_kv_snapshot(
        self, bucket: TableBucket, snapshot_id: int, from_key: bytes | None, to_key: bytes | None
    ) -> Iterator[pa.RecordBatch]:
        """Refuse with INVALID_REQUEST, since readers of a cluster read its KV snapshots themselves."""
        del from_key, to_key
        raise self._reads_itself(f"KV snapshot {snapshot_id} of {bucket}")

    def open_kv_scan(
        self, bucket: TableBucket, *, admit: Callable[[], None], on_lost: Callable[[], None]
    ) -> tuple[int, KvScan | None]:
        """Return a bucket's log end offset and a scan of its rows; see `TableStorage` and `ClusterScans.open`."""
        return self._scans.open(self.table_by_id(bucket.table_id), bucket, admit=admit, on_lost=on_lost)

    def write_lake_offsets(self, table_id: int, log_end_offsets: Mapping[TableBucket, int]) -> str:
        """Let the coordinator write an offsets file, merged with the current one, and return its path.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is no such table.
        """
        return self._client.call(prepare_lake_snapshot(self.table_by_id(table_id).path, table_id, log_end_offsets))

    def has_lake_offsets(self, table_id: int, path: str) -> bool:
        """Return whether `path` is an offsets file of this table that exists.

        Raises:
            FlussTieringError: STORAGE if it cannot be found out whether the file exists.
        """
        return is_offsets_file(self._files, table_id, path)

    def close(self) -> None:
        """End the scans, and then the threads and the connections."""
        self._scans.close()
        self._writer.close()
        self._calls.close()
        self._writes.close()
        self.link.client.close()

    def _make_database(self, name: str) -> FlussTieringError | None:
        """Make a database that the user does not see, and return the error if the user may not make any.

        The database may be there all the same, with tables that the user may not see.
        """
        try:
            self._client.call(create_database(name, ignore_if_exists=True))
        except FlussTieringError as error:
            if error.code is not ErrorCode.AUTHORIZATION:
                raise
            return error
        return None

    def _wait_for_leaders(self, table: TableInfo) -> None:
        deadline = time.monotonic() + _LEADERS_S
        wanted = {TableBucket(table.table_id, number) for number in range(table.descriptor.num_buckets)}
        asked = metadata([table.path], asked=ServerKind.COORDINATOR)
        while True:
            leaders = self._client.call(asked).leaders
            if all(leaders.get(bucket) is not None for bucket in wanted):
                return
            if time.monotonic() > deadline:
                raise FlussTieringError(
                    ErrorCode.UNAVAILABLE,
                    f"table {table.path} was created, but the cluster has elected no leaders of its buckets for "
                    f"{_LEADERS_S:g} s: check its tablet servers. A coordinator of Fluss 0.9.1 that is busy may miss a "
                    "new table; it finds it when it is restarted",
                )
            time.sleep(_LEADERS_STEP_S)

    def _reads_itself(self, what: str) -> FlussTieringError:
        return FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"{what}: expected to be read from the Fluss cluster at {self.link.bootstrap_servers}, not through the "
            "tiering server",
        )


def _with_bucket_key(descriptor: TableDescriptor) -> TableDescriptor:
    """Make the primary key without the partition keys the bucket key if none is named, as Fluss's clients do."""
    keys = descriptor.bucket_keys or descriptor.physical_primary_key
    if len(keys) > 1:
        raise FlussTieringError(
            ErrorCode.INVALID_TABLE,
            f"the bucket key ({', '.join(keys)}) has several columns: expected one of them to be named as the bucket "
            "key (--bucket-key of `fluss-tiering tables create`), since a Fluss cluster takes one if the lake is "
            "Iceberg",
        )
    return replace(descriptor, bucket_keys=keys)


def _cluster_id(link: ClusterLink, within: float) -> str:
    """Return an id that tells this cluster from others: the time when its first database was created.

    Fluss's servers do not give an id of their cluster. An address cannot serve as one, since there may be another
    cluster at it later, with other tables that have the same ids. The default database is asked for by its name, since
    a list of databases has only those that the user may see: another right would make it another cluster.
    """
    try:
        created = [link.client.call(database_created_time(_DEFAULT_DATABASE), within=within)]
    except FlussTieringError as error:
        if error.code is not ErrorCode.DATABASE_NOT_EXIST:
            raise
        databases = link.client.call(list_databases(), within=within)
        created = [link.client.call(database_created_time(name), within=within) for name in databases]
    return f"fluss-{min(created, default=0)}"
