"""What is turned into a message and back is what it was, also over the bytes."""

from __future__ import annotations

import dataclasses
import string
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from cases import cases
from fluss_tiering.api.v1 import kv_snapshot_leases_pb2, lake_tiering_pb2, tables_pb2
from fluss_tiering.model.data_type import NESTED, WITH_LENGTH, WITH_PRECISION, Field
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake import LakeSnapshot, MaintenanceReport
from fluss_tiering.model.table import (
    BucketInfo,
    Column,
    DataType,
    DataTypeRoot,
    KvSnapshot,
    StorageDescription,
    TableBucket,
    TableDescriptor,
    TableInfo,
    TablePath,
    WriteKind,
)
from fluss_tiering.model.tiering import (
    AcquiredLease,
    Claim,
    HeartbeatAnswer,
    HeartbeatEntry,
    KvSnapshotLease,
    LeaseDrop,
    LeaseOutcome,
    RoundOrigin,
    TieringRound,
    TieringState,
    TieringStats,
    TieringStatus,
)
from fluss_tiering.wire import buckets, leases, tables, tiering

ids = st.integers(0, 2**63 - 1)
small = st.integers(0, 2**31 - 1)
texts = st.text(max_size=20)
names = st.text(string.ascii_letters + string.digits + "-", min_size=1, max_size=20)
paths = st.builds(TablePath, names, names)
PLAIN = sorted(set(DataTypeRoot) - WITH_PRECISION - WITH_LENGTH - NESTED)
data_types = st.one_of(
    st.builds(DataType, st.sampled_from(PLAIN), st.booleans()),
    st.builds(DataType, st.sampled_from(sorted(WITH_LENGTH)), st.booleans(), length=st.integers(1, 2**31 - 1)),
    st.builds(DataType, st.just(DataTypeRoot.TIME), st.booleans(), st.integers(0, 9)),
    st.builds(DataType, st.just(DataTypeRoot.DECIMAL), st.booleans(), st.integers(19, 38), st.integers(0, 19)),
    st.builds(DataType, st.just(DataTypeRoot.TIMESTAMP_LTZ), st.booleans(), st.integers(0, 9)),
)
arrays = st.builds(
    DataType,
    st.just(DataTypeRoot.ARRAY),
    st.booleans(),
    fields=st.tuples(st.builds(Field, st.just("element"), data_types)),
)
rows = st.builds(
    DataType,
    st.just(DataTypeRoot.ROW),
    st.booleans(),
    fields=st.tuples(
        st.builds(Field, st.just("a"), arrays | data_types, st.none() | texts), st.builds(Field, st.just("b"), arrays)
    ),
)
data_types = data_types | arrays | rows
columns = st.builds(Column, texts, data_types, st.none() | texts)
descriptors = st.builds(
    TableDescriptor,
    st.lists(columns, max_size=5).map(tuple),
    st.lists(texts, max_size=2).map(tuple),
    st.lists(texts, max_size=1).map(tuple),
    small,
    st.dictionaries(texts, texts, max_size=3),
    st.none() | texts,
    partition_keys=st.lists(texts, max_size=2).map(tuple),
    auto_increment_columns=st.lists(texts, max_size=2).map(tuple),
)
table_buckets = st.builds(TableBucket, ids, small, st.none() | ids)
snapshot_values = st.builds(
    KvSnapshot, table_buckets, ids, ids, ids, ids, texts, st.lists(st.binary(), max_size=3).map(tuple)
)
stats = st.builds(TieringStats, ids, ids, small, st.none() | ids)
rounds = st.builds(
    TieringRound,
    ids,
    paths,
    ids,
    st.sampled_from(TieringState),
    texts,
    st.none() | ids,
    texts,
    ids,
    st.none() | ids,
    st.none() | texts,
    st.none() | stats,
    st.booleans(),
    origin=st.none() | st.builds(RoundOrigin, texts, texts, texts, st.none() | small, small, texts, texts),
    waiting_since=st.none() | ids,
)
statuses = st.builds(
    TieringStatus,
    ids,
    paths,
    st.sampled_from(TieringState),
    ids,
    ids,
    st.none() | ids,
    st.none() | texts,
    st.none() | ids,
    small,
    *[st.none() | ids] * 7,
    failing_since=st.none() | ids,
)


def sent(message: Any) -> Any:
    """The message as its receiver sees it."""
    assert isinstance(message, Message)
    return type(message).FromString(message.SerializeToString())


@given(st.builds(TableInfo, ids, paths, small, descriptors, ids, st.dictionaries(texts, texts, max_size=2)))
def test_tables(table: TableInfo) -> None:
    assert tables.table_from_pb(sent(tables.table_to_pb(table))) == table


@given(table_buckets, ids)
def test_buckets(bucket: TableBucket, snapshot_id: int) -> None:
    assert buckets.bucket_from_pb(sent(buckets.bucket_to_pb(bucket))) == bucket
    assert buckets.snapshot_ref_from_pb(sent(buckets.snapshot_ref_to_pb(bucket, snapshot_id))) == (
        bucket,
        snapshot_id,
    )


@given(snapshot_values, ids, ids, ids)
def test_bucket_infos(snapshot: KvSnapshot, start: int, end: int, size: int) -> None:
    table = TableInfo(snapshot.bucket.table_id, TablePath("db", "t"), 1, TableDescriptor(()), 0)
    infos = [
        BucketInfo(snapshot.bucket, start, end, size, snapshot, ("2026", "eu")),
        BucketInfo(snapshot.bucket, start, end, size),
    ]
    assert buckets.buckets_from_pb(sent(buckets.buckets_to_pb(table, infos))) == (table.path, infos)


def test_write_kinds() -> None:
    assert [tables.kind_from_pb(tables.kind_to_pb(kind)) for kind in WriteKind] == list(WriteKind)
    with refused(ErrorCode.INVALID_REQUEST):
        tables.kind_from_pb(tables_pb2.PB_WRITE_KIND_UNSPECIFIED)


@given(texts, texts, texts, texts, texts)
def test_storage_descriptions(kind: str, data_dir: str, data_dir_id: str, version: str, servers: str) -> None:
    description = StorageDescription(kind, data_dir, data_dir_id, version, servers)
    assert tables.description_from_pb(sent(tables.description_to_pb(description))) == description


@given(st.dictionaries(table_buckets, ids, max_size=5), texts, ids, ids)
def test_leases(snapshots: dict[TableBucket, int], lease_id: str, token: int, time: int) -> None:
    lease = KvSnapshotLease(lease_id, time, time, token, snapshots)
    assert leases.lease_from_pb(sent(leases.lease_to_pb(lease))) == lease
    acquired = AcquiredLease(lease_id, token, time, snapshots)
    assert leases.acquired_from_pb(lease_id, sent(leases.acquired_to_pb(acquired))) == acquired


def test_lease_answers() -> None:
    assert [leases.drop_from_pb(sent(leases.drop_to_pb(drop))) for drop in LeaseDrop] == list(LeaseDrop)
    assert leases.renewed_from_pb(sent(leases.renewed_to_pb("X", 5))) == 5
    refused = leases.renewed_from_pb(
        sent(leases.renewed_to_pb("X", FlussTieringError(ErrorCode.KV_SNAPSHOT_LEASE_NOT_EXIST, "gone")))
    )
    assert isinstance(refused, FlussTieringError)
    assert refused.code is ErrorCode.KV_SNAPSHOT_LEASE_NOT_EXIST


@given(rounds)
def test_rounds(tiering_round: TieringRound) -> None:
    assert tiering.round_from_pb(sent(tiering.round_to_pb(tiering_round))) == tiering_round


@given(statuses)
def test_statuses(status: TieringStatus) -> None:
    received = tiering.status_from_pb(sent(tiering.status_to_pb(status)))
    assert dataclasses.asdict(received) == dataclasses.asdict(status)


@given(st.lists(statuses, max_size=3))
def test_answers_with_statuses_are_their_entries_joined(many: list[TieringStatus]) -> None:
    entries = b"".join(tiering.status_to_bytes(each) for each in many)
    for answer in (lake_tiering_pb2.ListTieringStatusesResponse, lake_tiering_pb2.WatchTieringStatusesResponse):
        assert [tiering.status_from_pb(each) for each in answer.FromString(entries).tiering_statuses] == many


@given(st.builds(HeartbeatEntry, ids, ids, st.none() | texts, st.none() | stats, small))
def test_heartbeat_entries(entry: HeartbeatEntry) -> None:  # S15, S17
    assert tiering.entry_from_pb(sent(tiering.entry_to_pb(entry))) == entry


@given(st.builds(MaintenanceReport, ids, small, small, small, small))
def test_reports_on_maintenance(report: MaintenanceReport) -> None:
    assert tiering.maintenance_from_pb(sent(tiering.maintenance_to_pb(report))) == report


@given(st.lists(rounds, max_size=3).map(tuple), st.none() | texts, st.none() | ids)
def test_lease_outcomes(ended: tuple[TieringRound, ...], reason: str | None, token: int | None) -> None:
    outcome = LeaseOutcome(ended, reason, token)
    assert tiering.outcome_from_pb(sent(tiering.outcome_to_pb(outcome))) == outcome


@pytest.mark.parametrize("claim", [None, Claim(3, TablePath("db", "t"), 7)])
def test_heartbeat_answers(claim: Claim | None) -> None:
    error = FlussTieringError(ErrorCode.FENCED_TIERING_EPOCH, "fenced")
    answer = HeartbeatAnswer(0, claim, {1: error}, {}, {2: error})
    entries = [HeartbeatEntry(table_id, 1) for table_id in (1, 2, 3)]
    message = tiering.answer_to_pb(answer, tiering=entries, finished=entries, failed=entries)
    assert len(message.finished_table_resp) == 3, "each table has its answer"
    received = tiering.answer_from_pb(sent(message))
    assert received.claim == claim
    assert [
        errors.keys() for errors in (received.tiering_errors, received.finished_errors, received.failed_errors)
    ] == [
        {1},
        set(),
        {2},
    ]
    assert received.tiering_errors[1].code is ErrorCode.FENCED_TIERING_EPOCH


def test_claims() -> None:
    path = TablePath("db", "t")
    claim = Claim(3, path, 7)
    assert tiering.claim_from_pb(sent(tiering.claim_to_pb(path, claim))) == claim
    refused = tiering.claim_from_pb(sent(tiering.claim_to_pb(path, FlussTieringError(ErrorCode.STALE_ATTEMPT, "old"))))
    assert isinstance(refused, FlussTieringError)
    assert refused.code is ErrorCode.STALE_ATTEMPT


@given(st.dictionaries(st.builds(TableBucket, st.just(4), small, st.none() | ids), ids, max_size=5), ids)
def test_lake_snapshots(offsets: dict[TableBucket, int], snapshot_id: int) -> None:
    snapshot = LakeSnapshot(4, snapshot_id, offsets)
    assert tiering.lake_snapshot_from_pb(sent(tiering.lake_snapshot_to_pb(snapshot))) == snapshot
    assert tiering.log_end_offsets_from_pb(4, tiering.log_end_offsets_to_pb(offsets)) == offsets


def test_a_bucket_of_which_nothing_is_in_the_lake_is_left_out() -> None:
    message = lake_tiering_pb2.PbBucketLogEndOffset(bucket_id=1, log_end_offset=-1)
    assert tiering.log_end_offsets_from_pb(4, [message]) == {}


PINNED = kv_snapshot_leases_pb2.PbKvSnapshotLeaseForBucket


@cases(
    ("read", "named"),
    [
        (lambda: leases.snapshots_from_pb([lease_of(-1, PINNED())]), "table_id is -1"),
        (lambda: leases.snapshots_from_pb([lease_of(1, PINNED(bucket_id=-2))]), "bucket_id is -2"),
        (lambda: leases.snapshots_from_pb([lease_of(1, PINNED(snapshot_id=-3))]), "snapshot_id is -3"),
        (lambda: leases.snapshots_from_pb([lease_of(1, PINNED(partition_id=-4))]), "partition_id is -4"),
        (lambda: leases.snapshots_from_pb([lease_of(1, PINNED(), PINNED())]), "named twice"),
        (lambda: tiering.log_end_offsets_from_pb(1, [offset(-2)]), "offset -2"),
        (lambda: tiering.log_end_offsets_from_pb(1, [offset(1), offset(2)]), "named twice"),
        (lambda: tiering.stats_from_pb(lake_tiering_pb2.PbTieringStats(rows=-1)), "rows is -1"),
        (lambda: tables.descriptor_from_pb(tables_pb2.PbTableDescriptor(columns=[tables_pb2.PbColumn()])), "data_type"),
    ],
)
def test_what_cannot_be_is_refused_by_name(read: Any, named: str) -> None:
    with refused(ErrorCode.INVALID_REQUEST, named):
        read()


def lease_of(
    table_id: int, *pinned: kv_snapshot_leases_pb2.PbKvSnapshotLeaseForBucket
) -> kv_snapshot_leases_pb2.PbKvSnapshotLeaseForTable:
    return kv_snapshot_leases_pb2.PbKvSnapshotLeaseForTable(table_id=table_id, bucket_snapshots=pinned)


def offset(log_end_offset: int) -> lake_tiering_pb2.PbBucketLogEndOffset:
    return lake_tiering_pb2.PbBucketLogEndOffset(bucket_id=0, log_end_offset=log_end_offset)
