"""The conversions between values and rows of the database. A lease is damaged if its rows do not tell what it pins."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

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
from fluss_tiering.server.core.store.schema import NO_PARTITION, tiering_statuses

_STATUS: Final = tuple(set(tiering_statuses.columns.keys()) - {"database_name", "table_name", "state", "last_error"})
"""The columns that a status and its row have under the same names, in the same form."""
_ROUND: Final = (
    "table_id",
    "tiering_epoch",
    "lease_id",
    "attempt_token",
    "driver",
    "start_time",
    "end_time",
    "force_finished",
    "interrupted",
    "waiting_since",
)
"""The same of a round."""


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
        **_columns_of(status, _STATUS),
        **_path_to_columns(status.path),
        "state": status.state.value,
        "last_error": _storable(status.last_error),
    }


def status_from_row(row: sa.Row[Any]) -> TieringStatus:
    """Return the table's status of a row."""
    return TieringStatus(
        path=TablePath(row.database_name, row.table_name),
        state=TieringState(row.state),
        last_error=row.last_error,
        **_columns_of(row, _STATUS),
    )


def round_to_columns(tiering_round: TieringRound) -> Mapping[str, object]:
    """Return a round as a row."""
    stats = tiering_round.stats
    return {
        **_columns_of(tiering_round, _ROUND),
        **_path_to_columns(tiering_round.path),
        "state": tiering_round.state.value,
        "coordinator_epoch": tiering_round.coordinator_epoch,
        "error": _storable(tiering_round.error),
        "rows": None if stats is None else stats.rows,
        "bytes": None if stats is None else stats.bytes,
        "files": None if stats is None else stats.files,
        "lake_snapshot_id": None if stats is None else stats.lake_snapshot_id,
        "partitions": json.dumps(stats.partitions) if stats is not None and stats.partitions else None,
        "origin": _origin_to_json(tiering_round.origin),
    }


def round_from_row(row: sa.Row[Any]) -> TieringRound:
    """Return the round of a row."""
    return TieringRound(
        path=TablePath(row.database_name, row.table_name),
        state=TieringState(row.state),
        coordinator_epoch=row.coordinator_epoch or 0,
        error=row.error,
        stats=_stats_from_row(row),
        origin=None if row.origin is None else RoundOrigin(**json.loads(row.origin)),
        **_columns_of(row, _ROUND),
    )


def _columns_of(source: object, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(source, name) for name in names}


def _path_to_columns(path: TablePath) -> dict[str, str]:
    return {"database_name": path.database, "table_name": path.table}


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
