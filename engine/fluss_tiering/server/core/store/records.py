"""Values that are stored in addition to those of the model, and the offsets of a lake snapshot as one value.

A commit so writes one row, however many buckets the table has.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake import LakeSnapshot
from fluss_tiering.model.table import TableBucket
from fluss_tiering.model.tiering import TieringRound
from fluss_tiering.server.core.store.schema import NO_PARTITION

_VERSION: Final = b"\x01"
_ENTRY_BYTES: Final = 20
_FAST: Final = 1
"""The level of compression. It makes the numbers of neighbouring buckets small already."""


@dataclass(frozen=True, slots=True)
class PackedOffsets:
    """The offsets of all buckets of a table.

    Packing and unpacking many of them takes a while, so it is not done in the control thread.

    Attributes:
        data: A byte with the version of the form, 1, then compressed with zlib all partition ids (8 bytes each, -1 for
            none), all numbers of buckets (4 bytes each) and all offsets (8 bytes each), little-endian.
    """

    data: bytes

    @classmethod
    def of(cls, log_end_offsets: Mapping[TableBucket, int]) -> Self:
        """Pack offsets."""
        count = len(log_end_offsets)
        partitions = [NO_PARTITION if each.partition_id is None else each.partition_id for each in log_end_offsets]
        buckets = [each.bucket for each in log_end_offsets]
        packed = struct.pack(_form(count), *partitions, *buckets, *log_end_offsets.values())
        return cls(_VERSION + zlib.compress(packed, _FAST))

    def unpack(self, table_id: int) -> dict[TableBucket, int]:
        """Return the offset of each bucket of the table.

        Raises:
            FlussTieringError: CORRUPT_DATA if no server wrote this.
        """
        try:
            if self.data[:1] != _VERSION:
                raise ValueError(f"its form is {self.data[:1]!r}, expected {_VERSION!r}")
            packed = zlib.decompress(self.data[1:])
            count = len(packed) // _ENTRY_BYTES
            numbers = struct.unpack(_form(count), packed)
        except (ValueError, zlib.error, struct.error) as error:
            raise FlussTieringError(
                ErrorCode.CORRUPT_DATA,
                f"the database holds offsets of a lake snapshot of table {table_id} which no server wrote ({error}); "
                "restore it from a backup",
            ) from error
        partitions, buckets, offsets = numbers[:count], numbers[count : 2 * count], numbers[2 * count :]
        return {
            TableBucket(table_id, bucket, None if partition_id == NO_PARTITION else partition_id): offset
            for partition_id, bucket, offset in zip(partitions, buckets, offsets, strict=True)
        }


def _form(count: int) -> str:
    return f"<{count}q{count}i{count}q"


@dataclass(frozen=True, slots=True)
class LeaseAttempt:
    """The newest attempt under a lease id. It outlives the lease, so that late calls of older attempts are recognised.

    Attributes:
        attempt_token: The token of the attempt. It is greater than the tokens of all earlier attempts.
        started_time: When the attempt began, in milliseconds since the epoch.
        cancelled_reason: Why the attempt was cancelled, for clients that wait on it; None if it was not cancelled.
    """

    lease_id: str
    attempt_token: int
    started_time: int
    cancelled_reason: str | None = None


@dataclass(frozen=True, slots=True)
class CommittedLakeSnapshot:
    """A lake snapshot and the commit that made it.

    Attributes:
        table_id: The table's id.
        snapshot_id: The id of the snapshot in the lake.
        offsets: The offset up to which each bucket is in the lake.
        tiering_epoch: The epoch of the round that committed it.
        commit_id: The id by which a repeated commit is recognised.
        offsets_path: The offsets file that the snapshot's summary names.
        committed_time: When the commit was registered, in milliseconds since the epoch.
    """

    table_id: int
    snapshot_id: int
    offsets: PackedOffsets
    tiering_epoch: int
    commit_id: str
    offsets_path: str
    committed_time: int

    def unpack(self) -> LakeSnapshot:
        """Return the lake snapshot. Raises the errors of `PackedOffsets.unpack`."""
        return LakeSnapshot(self.table_id, self.snapshot_id, self.offsets.unpack(self.table_id))


@dataclass(frozen=True, slots=True)
class RoundsPage:
    """The rounds of some tables.

    Attributes:
        rounds: The rounds in the order of the tables' ids, for each table the newest first.
        next_after: The id of the last table that was looked at; None if no table follows it.
    """

    rounds: Sequence[TieringRound]
    next_after: int | None
