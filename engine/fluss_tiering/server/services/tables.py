"""The Tables service."""

# ruff: noqa: N802 - the methods are named by the API

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import pyarrow as pa
from google.protobuf.message import Message

from fluss_tiering.api.v1 import common_pb2
from fluss_tiering.api.v1 import tables_pb2 as pb
from fluss_tiering.api.v1.tables_pb2_grpc import TablesServicer as GeneratedTablesServicer
from fluss_tiering.formats.ipc import rows_from_ipc
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import KvSnapshot, TableBucket, TableInfo, TablePath, WriteKind
from fluss_tiering.model.table_options import LAKE_CATALOG_PREFIX, LAKE_TABLE_PREFIX
from fluss_tiering.server.components import ServerComponents
from fluss_tiering.server.core.lake.catalog import without_secrets
from fluss_tiering.server.core.tiering.policy import LakeOptions
from fluss_tiering.server.edge.callers.identity import Caller, caller
from fluss_tiering.server.edge.callers.roles import Role
from fluss_tiering.server.services.pages import Collected, page_size_of, token_of_path
from fluss_tiering.wire import tables as wire
from fluss_tiering.wire.buckets import (
    bucket_from_pb,
    buckets_to_pb,
    kv_snapshot_to_pb,
    offsets_to_pb,
    snapshot_ref_from_pb,
    taken_snapshots_to_pb,
)
from fluss_tiering.wire.checks import bounded, not_negative, required

_SNAPSHOTS_AT_ONCE: Final = 4
"""The number of threads, of the few that the storage has, in which one call looks for KV snapshots."""


class TablesServicer(GeneratedTablesServicer):
    """Tables, rows and KV snapshots over gRPC. The storage is called in its threads, tiering in the control thread."""

    def __init__(self, components: ServerComponents) -> None:
        self._threads = components.threads
        self._storage = components.storage
        self._catalog = components.catalog
        self._definitions = components.definitions
        self._executor_tokens = components.executor_tokens

    async def DescribeStorage(self, request: pb.DescribeStorageRequest, context: object) -> pb.DescribeStorageResponse:
        """Return which storage the server has."""
        return wire.description_to_pb(await self._threads.storage(self._storage.describe))

    async def CreateTable(self, request: pb.CreateTableRequest, context: object) -> pb.CreateTableResponse:
        """Create a table, and register it for tiering if its options ask for it."""
        path = wire.path_from_pb(required(request, "table_path", request.table_path))
        descriptor = wire.descriptor_from_pb(required(request, "descriptor", request.descriptor))
        _require_options(path, descriptor.properties)
        LakeOptions.of(descriptor.properties)
        table = await self._threads.to_its_end(
            self._definitions.create(path, descriptor, ignore_if_exists=request.ignore_if_exists)
        )
        return pb.CreateTableResponse(table=self._table_to_pb(table, caller()))

    async def AlterTable(self, request: pb.AlterTableRequest, context: object) -> pb.AlterTableResponse:
        """Set and reset options of a table, and apply them to its tiering; or change its columns."""
        path = wire.path_from_pb(required(request, "table_path", request.table_path))
        alteration = wire.alteration_from_pb(request)
        _require_options(path, {*alteration.set_properties, *alteration.reset_properties})
        if alteration.column_changes:
            altering = self._definitions.alter_columns(path, alteration.column_changes)
        else:
            altering = self._definitions.alter(path, alteration.apply)
        table = await self._threads.to_its_end(altering)
        return pb.AlterTableResponse(table=self._table_to_pb(table, caller()))

    async def DropTable(self, request: pb.DropTableRequest, context: object) -> pb.DropTableResponse:
        """Drop a table, and then its leases and its tiering state."""
        path = wire.path_from_pb(required(request, "table_path", request.table_path))
        untiered = await self._threads.to_its_end(
            self._definitions.drop(
                path, ignore_if_not_exists=request.ignore_if_not_exists, drop_untiered=request.drop_untiered
            )
        )
        return pb.DropTableResponse(dropped_untiered_records=untiered)

    async def DropPartition(self, request: pb.DropPartitionRequest, context: object) -> pb.DropPartitionResponse:
        """Drop a partition. Its rows in the lake stay there."""
        path = wire.path_from_pb(required(request, "table_path", request.table_path))
        values = tuple(bounded(request, "partition_values", request.partition_values))
        try:
            untiered = await self._threads.to_its_end(
                self._definitions.drop_partition(path, values, drop_untiered=request.drop_untiered)
            )
        except FlussTieringError as error:
            if error.code is not ErrorCode.PARTITION_NOT_EXIST or not request.ignore_if_not_exists:
                raise
            untiered = 0
        return pb.DropPartitionResponse(dropped_untiered_records=untiered)

    async def ListTables(  # type: ignore[override] # serialized already, which the interceptor allows
        self, request: pb.ListTablesRequest, context: object
    ) -> bytes:
        """Return the tables of a database, or all tables, as a serialized ListTablesResponse."""
        size, after = page_size_of(request), request.page_token
        asked_by = caller()
        tables = [
            table
            for table in await self._threads.storage(self._storage.tables)
            if request.database_name in ("", table.path.database)
            and token_of_path(table.path) > after
            and asked_by.sees(table.path)
        ]
        page = tables[:size] if size else tables
        collected = Collected("ListTables")
        collected.add((), await self._threads.storage(self._to_bytes, page, asked_by))
        end = token_of_path(page[-1].path) if len(page) < len(tables) else ""
        return collected.joined() + pb.ListTablesResponse(next_page_token=end).SerializeToString()

    async def GetTables(  # type: ignore[override] # serialized already, which the interceptor allows
        self, request: pb.GetTablesRequest, context: object
    ) -> bytes:
        """Return tables by name, as a serialized GetTablesResponse."""
        return await self._each(request, request.table_paths, partial(self._table, asked_by=caller()))

    async def CreateReadToken(self, request: pb.CreateReadTokenRequest, context: object) -> pb.CreateReadTokenResponse:
        """Return a token with which the executors of a query read a table; an empty one if callers need none."""
        path = wire.path_from_pb(required(request, "table_path", request.table_path))
        table = await self._threads.storage(self._storage.table, path)
        token = (
            ""
            if self._executor_tokens is None
            else self._executor_tokens.for_reads(table.table_id, path, caller().identity)
        )
        return pb.CreateReadTokenResponse(token=token)

    async def WriteRows(
        self, request_iterator: AsyncIterator[pb.WriteRowsRequest], context: object
    ) -> AsyncIterator[pb.WriteRowsResponse]:
        """Write rows. Each request is acknowledged once its rows are durable."""
        begun: dict[TablePath, TableInfo] = {}
        async for request in request_iterator:
            path = wire.path_from_pb(required(request, "table_path", request.table_path))
            kind = wire.kind_from_pb(request.kind)
            row_count, offsets = await self._threads.storage(self._write, path, kind, request.arrow_ipc, begun)
            yield pb.WriteRowsResponse(row_count=row_count, log_end_offsets=offsets_to_pb(offsets))

    async def ListBuckets(  # type: ignore[override] # likewise
        self, request: pb.ListBucketsRequest, context: object
    ) -> bytes:
        """Return the buckets of tables, as a serialized ListBucketsResponse."""
        return await self._each(request, request.table_paths, self._buckets)

    async def TakeKvSnapshots(  # type: ignore[override] # likewise
        self, request: pb.TakeKvSnapshotsRequest, context: object
    ) -> bytes:
        """Take KV snapshots of tables now. Return them as a serialized TakeKvSnapshotsResponse."""
        buckets = {bucket_from_pb(each) for each in bounded(request, "buckets", request.buckets)}
        take = partial(self._take_kv_snapshots, buckets=buckets or None)
        return await self._each(request, request.table_paths, take)

    async def GetKvSnapshotMetadata(
        self, request: pb.GetKvSnapshotMetadataRequest, context: object
    ) -> pb.GetKvSnapshotMetadataResponse:
        """Return KV snapshots by bucket and id."""
        references = [snapshot_ref_from_pb(each) for each in bounded(request, "snapshots", request.snapshots)]
        # A cluster is asked about each on its own.
        shares = [references[first::_SNAPSHOTS_AT_ONCE] for first in range(_SNAPSHOTS_AT_ONCE)]
        found = await self._threads.storage_each(self._kv_snapshots, shares)
        snapshots = [
            _existing(found[number % _SNAPSHOTS_AT_ONCE][number // _SNAPSHOTS_AT_ONCE], *reference)
            for number, reference in enumerate(references)
        ]
        return pb.GetKvSnapshotMetadataResponse(snapshots=[kv_snapshot_to_pb(each) for each in snapshots])

    async def FetchLog(self, request: pb.FetchLogRequest, context: object) -> AsyncIterator[pb.FetchLogResponse]:
        """Yield the log batches of a range of offsets."""
        bucket = bucket_from_pb(required(request, "bucket", request.bucket))
        start = not_negative(request, "start_offset", request.start_offset)
        end = not_negative(request, "end_offset", request.end_offset)
        async for chunk in self._threads.iterate(partial(self._storage.fetch_log, bucket, start, end)):
            yield pb.FetchLogResponse(log_batches=chunk)

    async def FetchKvSnapshot(
        self, request: pb.FetchKvSnapshotRequest, context: object
    ) -> AsyncIterator[pb.FetchKvSnapshotResponse]:
        """Yield the entries of a key range of a KV snapshot."""
        bucket = bucket_from_pb(required(request, "bucket", request.bucket))
        snapshot_id = not_negative(request, "snapshot_id", request.snapshot_id)
        from_key = request.from_key if request.HasField("from_key") else None
        to_key = request.to_key if request.HasField("to_key") else None
        fetch = partial(self._storage.fetch_kv_snapshot, bucket, snapshot_id, from_key, to_key)
        async for entries in self._threads.iterate(fetch):
            yield pb.FetchKvSnapshotResponse(arrow_ipc=_to_ipc(entries))

    def _write(
        self, path: TablePath, kind: WriteKind, arrow_ipc: bytes, begun: dict[TablePath, TableInfo]
    ) -> tuple[int, Mapping[TableBucket, int]]:
        """Write the rows of one request. `begun` has each table as it was when the call began to write to it."""
        rows, table = rows_from_ipc(arrow_ipc), self._storage.table(path)
        _require_same_columns(begun.setdefault(path, table), table, rows.column_names)
        return rows.num_rows, self._storage.write(path, kind, rows)

    def _buckets(self, path: TablePath) -> pb.ListBucketsResponse:
        return pb.ListBucketsResponse(tables=[buckets_to_pb(self._storage.table(path), self._storage.buckets(path))])

    def _take_kv_snapshots(
        self, path: TablePath, *, buckets: Collection[TableBucket] | None
    ) -> pb.TakeKvSnapshotsResponse:
        taken = self._storage.take_kv_snapshots(path, buckets)
        return pb.TakeKvSnapshotsResponse(
            tables=[taken_snapshots_to_pb(self._storage.table(path).table_id, taken)],
        )

    def _kv_snapshots(self, references: Iterable[tuple[TableBucket, int]]) -> list[KvSnapshot | None]:
        return [self._storage.kv_snapshot(bucket, snapshot_id) for bucket, snapshot_id in references]

    def _table_to_pb(self, table: TableInfo, asked_by: Caller) -> pb.PbTableInfo:
        """Return the message of a table. Who may not tier it does not get the credentials of its lake."""
        complete = self._catalog.complete(table)
        return wire.table_to_pb(complete if asked_by.has(Role.TIERER, table.path) else without_secrets(complete))

    def _table(self, path: TablePath, *, asked_by: Caller) -> pb.GetTablesResponse:
        return pb.GetTablesResponse(tables=[self._table_to_pb(self._storage.table(path), asked_by)])

    def _to_bytes(self, tables: Sequence[TableInfo], asked_by: Caller) -> bytes:
        messages = [self._table_to_pb(table, asked_by) for table in tables]
        return pb.ListTablesResponse(tables=messages).SerializeToString()

    async def _each(
        self, request: Message, messages: Sequence[common_pb2.PbTablePath], function: Callable[[TablePath], Message]
    ) -> bytes:
        """Call a function in a storage thread, once for each of the tables that a request names.

        Return the answers of all paths joined. A request for many large tables, or for one of them often, is refused
        as soon as it would have a huge answer.
        """
        places: dict[TablePath, list[int]] = {}
        for number, message in enumerate(bounded(request, "table_paths", messages)):
            places.setdefault(wire.path_from_pb(message), []).append(number)
        collected = Collected(request.DESCRIPTOR.name.removesuffix("Request"))

        def collect() -> None:
            for path, numbers in places.items():
                answer = function(path).SerializeToString()
                for number in numbers:
                    collected.add((number,), answer)

        await self._threads.storage(collect)
        return collected.joined()


def _require_options(path: TablePath, keys: Iterable[str]) -> None:
    """Check that the caller may set or reset options of a table.

    An option of the lake catalog decides with whom a driver speaks, which classes it loads, and where it sends the
    credentials of the server's catalog. The driver is somebody else's, with rights for other tables.

    Raises:
        FlussTieringError: AUTHORIZATION if one of the options is about the catalog, about a path or about a class, and
            the caller is not an administrator of all tables.
    """
    identity = caller().identity
    if identity.has_for_all(Role.ADMIN):
        return
    for key in sorted(keys):
        in_lake = key.startswith(LAKE_TABLE_PREFIX) and key.lower().endswith(("path", "location", "impl"))
        if key.startswith(LAKE_CATALOG_PREFIX) or in_lake:
            raise FlussTieringError(
                ErrorCode.AUTHORIZATION,
                f"{identity.name} may not set or reset {key} of table {path}: the option decides where the drivers of "
                "others write and what they load, so it takes the role admin for all tables; leave the option out, or "
                "ask an administrator of the server for it",
            )


def _require_same_columns(begun: TableInfo, table: TableInfo, names: Iterable[str]) -> None:
    """Check that names of columns mean what they did when a call began to write rows.

    Raises:
        FlussTieringError: INVALID_ROWS if the columns were altered, and one of the names has gone to another column.
    """
    if begun.schema_id == table.schema_id:
        return
    before, now = begun.present_schema.ids, table.present_schema.ids
    moved = [name for name in names if name in before and before[name] != now.get(name)]
    if moved:
        raise FlussTieringError(
            ErrorCode.INVALID_ROWS,
            f"the columns of {table.path} were altered while rows were written, and {', '.join(map(repr, moved))} is "
            "not the column any more that it was: expected the names to stay during a call; call again with the rows "
            "that were not acknowledged, under the names that the columns have now",
        )


def _existing(snapshot: KvSnapshot | None, bucket: TableBucket, snapshot_id: int) -> KvSnapshot:
    if snapshot is None:
        raise FlussTieringError(
            ErrorCode.KV_SNAPSHOT_NOT_EXIST,
            f"snapshot {snapshot_id} of {bucket} does not exist (any more): plan again from the latest",
        )
    return snapshot


def _to_ipc(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())
