"""Compares a lake table with its source, bucket by bucket: it counts rows, adds up their hashes, and names keys.

Both sides are Spark data frames, hashed by the same expression. Executors read the source's rows as a round reads
them. Spark's own scan of one lake snapshot reads the lake's rows. A log table is compared row by row, by offset and
commit time; if asked, only what newer rounds have added to it. A primary-key table is compared by key, as of the
offsets of the lake's newest commit. Nothing is locked: those offsets and that snapshot do not change while writes and
rounds go on. Rows that Fluss drops without a changelog are told apart (`expiry`).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import and_, or_

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import ArrayType, StructType
from pyspark.sql.types import DataType as SparkType

from fluss_tiering.client import TieringClient
from fluss_tiering.lake.iceberg.catalog import IcebergCatalogs
from fluss_tiering.lake.iceberg.table import IcebergTable
from fluss_tiering.lake.iceberg.validation import refuse_times
from fluss_tiering.lake.names import lake_table_name, quoted
from fluss_tiering.lake.protocol import CommittedSnapshot
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake import OLDER_TABLE_REMEDY
from fluss_tiering.model.table import (
    BUCKET_COLUMN,
    OFFSET_COLUMN,
    BucketInfo,
    KvSnapshot,
    TableBucket,
    TableInfo,
)
from fluss_tiering.model.tiering import DEFAULT_LEASE_DURATION_MS
from fluss_tiering.spark.audit.comparison import compared, content, differences, hashed
from fluss_tiering.spark.audit.damage import damaged_file
from fluss_tiering.spark.audit.expiry import expires_after, without_expired, without_records
from fluss_tiering.spark.audit.layouts import begin_of_comparison, offsets_of, with_buckets, without_places
from fluss_tiering.spark.audit.report import TableAudit
from fluss_tiering.spark.audit.source_rows import SourceRows, schema_of
from fluss_tiering.spark.round.commit import missing_lake_table
from fluss_tiering.spark.round.plan import PlanLimits, RoundPlan, SnapshotPiece, plan_round
from fluss_tiering.spark.round.stage import failure_of
from fluss_tiering.spark.round.waves import tasks_of
from fluss_tiering.storage.open import cluster_access, open_offsets_reader, open_split_reader
from fluss_tiering.storage.reading import measured


@dataclass(frozen=True, slots=True)
class _Scope:
    """What is compared of a table.

    Attributes:
        lake: The lake table.
        offsets: The offsets up to which it has the logs.
        held: The buckets of which it has something.
        begin: The snapshot after which the logs are compared; None if they are compared from their start.
        added_after: The id of that snapshot if, of the lake, only what was added after it is compared; None if the rows
            of the snapshot have to be there, too.
    """

    table: TableInfo
    lake: IcebergTable
    snapshot_id: int
    offsets: Mapping[TableBucket, int]
    held: Sequence[BucketInfo]
    begin: CommittedSnapshot | None
    added_after: int | None


def verify_table(
    client: TieringClient,
    spark: SparkSession,
    table: TableInfo,
    *,
    target: str,
    max_differences: int = 20,
    newer_than: timedelta | None = None,
) -> TableAudit:
    """Compare a table with its lake table.

    Args:
        table: The table to verify.
        target: The server's address, for executors that cannot open the storage's files.
        max_differences: How many differing keys are named at most.
        newer_than: The age of rounds whose rows are not compared, for a log table; None to compare all rows.

    Raises:
        FlussTieringError: INVALID_REQUEST if the table has a TIME column, or a primary key and only newer rows are
            asked for; STORAGE if the lake or the storage cannot be read; CORRUPT_DATA if a file of the lake is missing
            or damaged; LAKE_TABLE_MISMATCH if the lake table is gone or belongs to another table; UNAVAILABLE if the
            server cannot be reached; LOG_OFFSET_OUT_OF_RANGE if the log no longer begins at the table's start and there
            is no KV snapshot from before the lake's offsets.
    """
    refuse_times(table, "compare this one with another reader of the lake, for example DuckDB")
    known = client.lake_snapshot(table.path)
    # An audit never creates a lake table.
    lake_table = IcebergCatalogs(spark).find_table(table)
    if lake_table is None:
        if known is None:
            return TableAudit(table.path, None)
        raise missing_lake_table(table, known)
    table = lake_table.table
    # This also fails if the lake's history does not belong to the table.
    read_offsets = open_offsets_reader(client.describe_storage(), table)
    unregistered = lake_table.unregistered_commit(None if known is None else known.snapshot_id, read_offsets)
    snapshot_id = lake_table.base()
    if snapshot_id is None:
        written = any(info.log_end_offset > 0 for info in client.list_buckets([table.path])[table.path])
        return TableAudit(table.path, None, both_empty=not written)
    offsets = {} if known is None else known.log_end_offsets
    if unregistered is not None:
        offsets = unregistered.commit.log_end_offsets
    held = [info for info in client.list_buckets([table.path])[table.path] if offsets.get(info.bucket, 0) > 0]
    for info in held:
        if info.log_end_offset < offsets[info.bucket]:
            raise FlussTieringError(
                ErrorCode.LAKE_TABLE_MISMATCH,
                f"the lake of the table {table.path} is newer than the table: it holds the log of {info.bucket} up to "
                f"offset {offsets[info.bucket]}, and that ends at {info.log_end_offset}; {OLDER_TABLE_REMEDY}",
            )
    limits = PlanLimits(parallelism=spark.sparkContext.defaultParallelism)
    kv_ttl = expires_after(table)

    def damage() -> FlussTieringError | None:
        return damaged_file(spark, table, snapshot_id, lake_table.file_writer().io_properties)

    old = _older_snapshots(spark, table, newer_than)
    begin = begin_of_comparison(table, lake_table, held, read_offsets, old)
    after = begin.snapshot_id if old and begin is not None else None
    if after == snapshot_id:
        return TableAudit(table.path, snapshot_id, after_snapshot_id=after)
    scope = _Scope(table, lake_table, snapshot_id, offsets, held, begin, after)
    with _source_plan(client, scope, limits, target=target) as plan:
        try:
            source_rows, lake_rows = _sides(client, spark, scope, plan, target)
            source, lake = hashed(table, source_rows), hashed(table, lake_rows)
            ends = offsets_of(table, offsets) if lake_table.is_clean else offsets
            buckets = compared(ends, content(source), content(lake))
            if kv_ttl is not None and not all(each.equal for each in buckets):
                lake, expired = without_expired(table, source_rows, lake, _in_snapshots(table, held, plan))
                buckets = [
                    replace(each, expired_rows=expired.get(each.bucket, 0))
                    for each in compared(offsets, content(source), content(lake))
                ]
            differing = [each.bucket for each in buckets if not each.equal]
            # Spark compares no checksums of pages in files that it does not read with Hadoop.
            if differing and (error := damage()) is not None:
                raise error
            found = differences(table, source, lake, differing, max_differences + 1) if differing else []
        except (Py4JError, PySparkException) as error:
            raise _named(error, damage) from None
    named = tuple(found[:max_differences])
    more = len(found) > max_differences
    return TableAudit(table.path, snapshot_id, tuple(buckets), named, more, kv_ttl, after_snapshot_id=after)


def _named(error: Py4JError | PySparkException, damage: Callable[[], FlussTieringError | None]) -> FlussTieringError:
    """Return the error of a damaged file of the lake table if there is one, or that of the Spark job that failed."""
    with suppress(FlussTieringError, Py4JError, PySparkException):
        if (found := damage()) is not None:
            return found
    return failure_of(error)


def _older_snapshots(spark: SparkSession, table: TableInfo, age: timedelta | None) -> frozenset[int]:
    """Return the snapshots of a lake table that have at least this age; none without an age.

    Raises:
        FlussTieringError: INVALID_REQUEST if the table has a primary key.
    """
    if age is None:
        return frozenset()
    if table.has_primary_key:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"the table {table.path} has a primary key, so that newer rounds change rows of older ones: expected a log "
            "table; leave out --newer-than (newer_than), and all of its rows are compared",
        )
    snapshots = spark.table(f"{lake_table_name(table)}.snapshots")
    old = snapshots.where(sf.col("committed_at") <= sf.lit(datetime.now(UTC) - age))
    return frozenset(row[0] for row in old.select("snapshot_id").collect())


@contextmanager
def _source_plan(client: TieringClient, scope: _Scope, limits: PlanLimits, *, target: str) -> Iterator[RoundPlan]:
    """Yield a plan of what has to be read of the source. Its KV snapshots are leased until the block ends."""
    table, held, offsets = scope.table, scope.held, scope.offsets
    snapshots = _snapshots(table, held, offsets) if table.has_primary_key else {}
    lease_id = f"fluss-tiering-verify-{uuid.uuid4()}"
    pinned = {bucket: snapshot.snapshot_id for bucket, snapshot in snapshots.items()}
    # A signal may come when the server has the lease, and before this process knows it.
    with _dropped_at_the_end(client, lease_id) if pinned else nullcontext():
        if pinned:
            gone = client.acquire_lease(lease_id, DEFAULT_LEASE_DURATION_MS, pinned).unavailable_snapshots
            snapshots = {bucket: snapshot for bucket, snapshot in snapshots.items() if bucket not in gone}
        snapshots = measured(lambda: open_split_reader(client.describe_storage(), target), table, snapshots)
        yield plan_round(
            has_primary_key=table.has_primary_key,
            # A log table is compared from the present start of its log, if the lake has it up to there.
            tiered=_compared_from(scope),
            buckets=[_up_to(info, offsets[info.bucket]) for info in held],
            snapshots=snapshots,
            limits=limits,
        )


def _compared_from(scope: _Scope) -> Mapping[TableBucket, int]:
    """Return the offsets from which the logs are compared; none for a primary-key table, which is read as a whole."""
    if scope.table.has_primary_key:
        return {}
    if scope.begin is not None:
        return {info.bucket: scope.begin.commit.log_end_offsets.get(info.bucket, 0) for info in scope.held}
    return {info.bucket: min(info.log_start_offset, scope.offsets[info.bucket]) for info in scope.held}


def _sides(
    client: TieringClient, spark: SparkSession, scope: _Scope, plan: RoundPlan, target: str
) -> tuple[DataFrame, DataFrame]:
    """Return the rows of the source, and those of the lake."""
    table = scope.table
    source, lake = _source(client, spark, table, plan, target), _lake(spark, scope, scope.snapshot_id, plan)
    # The lake table was opened before, so that all of what is missing there is expired by now.
    now = datetime.now(UTC)
    source, lake = without_records(table, source, now), without_records(table, lake, now)
    if scope.lake.is_clean:
        source, lake = without_places(table, source), without_places(table, lake)
    if scope.begin is not None and scope.added_after is None:
        before = without_records(table, _lake(spark, scope, scope.begin.snapshot_id, plan), now)
        source = source.unionByName(without_places(table, before), allowMissingColumns=True)
    return source, lake


@contextmanager
def _dropped_at_the_end(client: TieringClient, lease_id: str) -> Iterator[None]:
    """Drop a lease when the block ends. That this fails does not hide why the block ended."""
    try:
        yield
    except BaseException:
        with suppress(FlussTieringError):
            client.drop_lease(lease_id)
        raise
    client.drop_lease(lease_id)


def _snapshots(
    table: TableInfo, infos: Sequence[BucketInfo], offsets: Mapping[TableBucket, int]
) -> dict[TableBucket, KvSnapshot]:
    """Return the KV snapshots of buckets whose log alone does not tell their rows.

    The log does not tell them if it no longer begins at offset 0, or if rows expire without a change in the log.

    Raises:
        FlussTieringError: LOG_OFFSET_OUT_OF_RANGE if such a bucket has no KV snapshot of the right offsets.
    """
    expires = expires_after(table) is not None
    snapshots = {}
    for info in infos:
        latest, end = info.latest_kv_snapshot, offsets[info.bucket]
        if info.log_start_offset == 0 and not (expires and latest is not None):
            continue
        if latest is None or not info.log_start_offset <= latest.log_offset <= end:
            why = "rows expire" if info.log_start_offset == 0 else f"its log begins at offset {info.log_start_offset}"
            raise FlussTieringError(
                ErrorCode.LOG_OFFSET_OUT_OF_RANGE,
                f"{info.bucket}: {why}, and its latest KV snapshot is not from before offset {end}, up to which the "
                "lake holds it: tier the table and verify it again",
            )
        snapshots[info.bucket] = latest
    return snapshots


def _up_to(info: BucketInfo, offset: int) -> BucketInfo:
    start = min(info.log_start_offset, offset)
    share = (offset - start) / max(1, info.log_end_offset - info.log_start_offset)
    return replace(
        info,
        log_start_offset=start,
        log_end_offset=offset,
        log_size_bytes=int(info.log_size_bytes * share),
        latest_kv_snapshot=None,
    )


def _source(client: TieringClient, spark: SparkSession, table: TableInfo, plan: RoundPlan, target: str) -> DataFrame:
    storage = client.describe_storage()
    security = client.security_of_executors(table.path)
    read = SourceRows(table, storage, target, plan.pieces, cluster_access(storage), security)
    tasks = max(1, tasks_of(plan.pieces, spark.sparkContext.defaultParallelism))

    def work(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return read(numbers)

    try:
        schema = from_arrow_schema(schema_of(table), prefer_timestamp_ntz=True)
        return spark.range(0, len(plan.pieces), 1, tasks).mapInArrow(work, schema)
    except ImportError as error:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"Spark {spark.version} cannot read the table, since it needs a library ({error}): pip install pandas, and "
            "with Spark 3.5 on Python 3.12 or later also setuptools; Spark 4.1 needs none",
        ) from None


def _lake(spark: SparkSession, scope: _Scope, snapshot_id: int, plan: RoundPlan) -> DataFrame:
    """Return the lake's rows of the buckets that the source still has, from the start of its logs on."""
    table, held = scope.table, scope.held
    if scope.added_after is not None:
        options = {"start-snapshot-id": scope.added_after, "end-snapshot-id": snapshot_id}
        rows = spark.read.options(**options).table(lake_table_name(table))
    else:
        rows = spark.read.option("versionAsOf", snapshot_id).table(lake_table_name(table))
        # A snapshot has the columns of its time.
        names = scope.lake.names_in(snapshot_id)
        rows = rows.select(*((sf.col(quoted(was)) if was else sf.lit(None)).alias(name) for name, was in names.items()))
    # Users may have added columns to the lake table, and widened types. A hash depends on the type.
    wanted = from_arrow_schema(schema_of(table), prefer_timestamp_ntz=True)
    narrowed = {
        field.name: _narrowed(sf.col(quoted(field.name)), rows.schema[field.name].dataType, field.dataType)
        for field in wanted.fields
        if field.name in rows.columns and rows.schema[field.name].dataType != field.dataType
    }
    rows = rows.withColumns(narrowed)
    if scope.lake.is_clean:
        rows = with_buckets(table, rows)
    if table.descriptor.partition_keys:
        present = sorted({info.partition_values for info in held})
        # The lake keeps the rows of partitions that were dropped.
        rows = rows.where(reduce(or_, (_in_partition(table, values) for values in present), sf.lit(False)))
    if not (table.has_primary_key or scope.lake.is_clean):
        for info in held:
            start = plan.start_offsets.get(info.bucket, 0)
            if start > 0:
                elsewhere = ~(_in_partition(table, info.partition_values) & _in_bucket(info))
                rows = rows.where(elsewhere | (sf.col(OFFSET_COLUMN) >= start))
    return rows


def _narrowed(value: Column, found: SparkType, wanted: SparkType) -> Column:
    """Return a column of the lake in the type of the source: without further fields, and not widened."""
    if isinstance(found, StructType) and isinstance(wanted, StructType):
        fields = (
            _narrowed(value.getField(field.name), found[field.name].dataType, field.dataType).alias(field.name)
            for field in wanted.fields
        )
        return sf.when(value.isNotNull(), sf.struct(*fields))
    if isinstance(found, ArrayType) and isinstance(wanted, ArrayType):
        before, after = found.elementType, wanted.elementType
        return sf.transform(value, lambda element: _narrowed(element, before, after))
    return value if found == wanted else value.cast(wanted)


def _in_snapshots(table: TableInfo, held: Sequence[BucketInfo], plan: RoundPlan) -> Column:
    """Return the condition that a row is in a bucket that is read from a KV snapshot."""
    read = {piece.bucket for piece in plan.pieces if isinstance(piece, SnapshotPiece)}
    conditions = (
        _in_partition(table, info.partition_values) & _in_bucket(info) for info in held if info.bucket in read
    )
    return reduce(or_, conditions, sf.lit(False))


def _in_partition(table: TableInfo, values: Sequence[str]) -> Column:
    keys = zip(table.descriptor.partition_keys, values, strict=True)
    return reduce(and_, (sf.col(quoted(key)) == sf.lit(value) for key, value in keys), sf.lit(True))


def _in_bucket(info: BucketInfo) -> Column:
    return sf.col(BUCKET_COLUMN) == info.bucket.bucket
