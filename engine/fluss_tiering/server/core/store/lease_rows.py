"""Reading leases from their rows. A lease is damaged if its rows do not tell which snapshots it pins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from fluss_tiering.model.table import TableBucket
from fluss_tiering.model.tiering import KvSnapshotLease
from fluss_tiering.server.core.store.rows import bucket_from_row


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
