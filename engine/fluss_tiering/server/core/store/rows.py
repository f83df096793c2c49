"""The conversions between values and rows of the database. A lease is damaged if its rows do not tell what it pins."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa

from fluss_tiering.model.table import TableBucket, TablePath
from fluss_tiering.model.tiering import (
    KvSnapshotLease,
    RoundOrigin,
    TieringRound,
    TieringState,
    TieringStats,
    TieringStatus,
)
from fluss_tiering.server.core.store.records import LeaseAttempt
from fluss_tiering.server.core.store.schema import NO_PARTITION


def bucket_to_columns(bucket: TableBucket) -> dict[str, int]:
    """Return the partition id and the bucket id of a bucket as columns of a key."""
    return {
        "partition_id": NO_PARTITION if bucket.partition_id is None else bucket.partition_id,
        "bucket_id": bucket.bucket,
    }


def bucket_from_row(table_id: int, row: sa.Row[Any]) -> TableBucket:
    """Return the bucket of a row that has a partition id and a bucket id."""
    return TableBucket(table_id, row.bucket_id, None if row.partition_id == NO_PARTITION else row.partition_id)


def attempt_to_columns(attempt: LeaseAttempt) -> Mapping[str, object]:
    """Return an attempt as a row."""
    return {
        "lease_id": attempt.lease_id,
        "attempt_token": attempt.attempt_token,
        "started_time": attempt.started_time,
        "cancelled_reason": _storable(attempt.cancelled_reason),
    }


def attempt_from_row(row: sa.Row[Any]) -> LeaseAttempt:
    """Return the attempt of a row."""
    return LeaseAttempt(row.lease_id, int(row.attempt_token), int(row.started_time), row.cancelled_reason)


def status_to_columns(status: TieringStatus) -> Mapping[str, object]:
    """Return a table's status as a row."""
    return {
        "table_id": status.table_id,
        "database_name": status.path.database,
        "table_name": status.path.table,
        "state": status.state.value,
        "state_since": status.state_since,
        "tiering_epoch": status.tiering_epoch,
        "last_tiered_time": status.last_tiered_time,
        "last_error": _storable(status.last_error),
        "last_error_time": status.last_error_time,
        "consecutive_failures": status.consecutive_failures,
        "next_retry_time": status.next_retry_time,
        "interruptions": status.interruptions,
        "failing_since": status.failing_since,
        "dropped_untiered_records": status.dropped_untiered_records,
        "dropped_untiered_time": status.dropped_untiered_time,
    }


def status_from_row(row: sa.Row[Any]) -> TieringStatus:
    """Return the table's status of a row."""
    return TieringStatus(
        table_id=row.table_id,
        path=TablePath(row.database_name, row.table_name),
        state=TieringState(row.state),
        state_since=int(row.state_since),
        tiering_epoch=int(row.tiering_epoch),
        last_tiered_time=row.last_tiered_time,
        last_error=row.last_error,
        last_error_time=row.last_error_time,
        consecutive_failures=row.consecutive_failures,
        next_retry_time=row.next_retry_time,
        interruptions=row.interruptions,
        failing_since=row.failing_since,
        dropped_untiered_records=row.dropped_untiered_records,
        dropped_untiered_time=row.dropped_untiered_time,
    )


def round_to_columns(tiering_round: TieringRound) -> Mapping[str, object]:
    """Return a round as a row."""
    stats = tiering_round.stats
    return {
        "table_id": tiering_round.table_id,
        "tiering_epoch": tiering_round.tiering_epoch,
        "database_name": tiering_round.path.database,
        "table_name": tiering_round.path.table,
        "state": tiering_round.state.value,
        "lease_id": tiering_round.lease_id,
        "attempt_token": tiering_round.attempt_token,
        "driver": tiering_round.driver,
        "start_time": tiering_round.start_time,
        "end_time": tiering_round.end_time,
        "error": _storable(tiering_round.error),
        "rows": None if stats is None else stats.rows,
        "bytes": None if stats is None else stats.bytes,
        "files": None if stats is None else stats.files,
        "lake_snapshot_id": None if stats is None else stats.lake_snapshot_id,
        "partitions": json.dumps(stats.partitions) if stats is not None and stats.partitions else None,
        "force_finished": tiering_round.force_finished,
        "coordinator_epoch": tiering_round.coordinator_epoch,
        "interrupted": tiering_round.interrupted,
        "origin": _origin_to_json(tiering_round.origin),
        "waiting_since": tiering_round.waiting_since,
    }


def round_from_row(row: sa.Row[Any]) -> TieringRound:
    """Return the round of a row."""
    return TieringRound(
        table_id=row.table_id,
        path=TablePath(row.database_name, row.table_name),
        tiering_epoch=int(row.tiering_epoch),
        state=TieringState(row.state),
        lease_id=row.lease_id,
        attempt_token=row.attempt_token,
        driver=row.driver,
        start_time=row.start_time,
        end_time=row.end_time,
        error=row.error,
        stats=_stats_from_row(row),
        force_finished=row.force_finished,
        coordinator_epoch=row.coordinator_epoch or 0,
        interrupted=row.interrupted,
        origin=None if row.origin is None else RoundOrigin(**json.loads(row.origin)),
        waiting_since=row.waiting_since,
    )


def _stats_from_row(row: sa.Row[Any]) -> TieringStats | None:
    if row.rows is None:
        return None
    partitions = () if row.partitions is None else tuple(json.loads(row.partitions))
    return TieringStats(row.rows, row.bytes, row.files, row.lake_snapshot_id, partitions=partitions)


def _origin_to_json(origin: RoundOrigin | None) -> str | None:
    if origin is None:
        return None
    return json.dumps({name: value for name, value in asdict(origin).items() if value or value == 0})


def _storable(text: str | None) -> str | None:
    """Return a free text as it can be stored: PostgreSQL does not store NUL."""
    return None if text is None else text.replace("\0", "\N{REPLACEMENT CHARACTER}")


@dataclass(frozen=True, slots=True)
class StoredLeases:
    """The leases of a database.

    Attributes:
        sound: The leases that could be read.
        damaged: The leases that could not be read: lease id -> what is wrong with it.
    """

    sound: Sequence[KvSnapshotLease]
    damaged: Mapping[str, str]


def stored_leases(leases: Iterable[sa.Row[Any]], snapshots: Iterable[sa.Row[Any]]) -> StoredLeases:
    """Read leases from the rows of `kv_snapshot_leases` and `leased_snapshots`. A bad row damages one lease only."""
    pinned: dict[str, dict[TableBucket, int]] = {}
    damaged: dict[str, str] = {}
    for row in snapshots:
        if _numbers(row.table_id, row.partition_id, row.bucket_id, row.snapshot_id):
            pinned.setdefault(row.lease_id, {})[bucket_from_row(row.table_id, row)] = row.snapshot_id
        else:
            damaged[str(row.lease_id)] = f"a snapshot that it pins is stored as {tuple(row)[1:]}"
    sound = []
    for row in leases:
        held = pinned.pop(row.lease_id, {})
        if not _numbers(row.acquired_time, row.expiration_time, row.attempt_token):
            damaged[str(row.lease_id)] = f"its times and token are stored as {tuple(row)[1:]}"
        elif not held:
            damaged.setdefault(str(row.lease_id), "the snapshots that it pins are missing")
        elif row.lease_id not in damaged:
            sound.append(
                KvSnapshotLease(
                    lease_id=row.lease_id,
                    acquired_time=row.acquired_time,
                    expiration_time=row.expiration_time,
                    attempt_token=row.attempt_token,
                    snapshots=held,
                )
            )
    for lease_id in pinned:
        damaged.setdefault(str(lease_id), "it pins snapshots, but its expiration time is missing")
    return StoredLeases(sound, damaged)


def _numbers(*values: object) -> bool:
    # SQLite stores any type in any column.
    return all(isinstance(value, int) for value in values)
