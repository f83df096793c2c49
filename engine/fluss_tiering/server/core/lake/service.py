"""Lake snapshots as the gRPC services see them: known to this server alone, or to a Fluss cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from fluss_tiering.model.lake import LakeSnapshot
from fluss_tiering.model.table import TableBucket, TableInfo
from fluss_tiering.server.core.lake.merging import CommitRegistration


class LakeService(Protocol):
    """The calls on lake snapshots."""

    async def newest(self, table: TableInfo) -> LakeSnapshot | None:
        """Return the newest lake snapshot of a table, or None."""
        ...

    async def snapshot(self, table: TableInfo, snapshot_id: int) -> LakeSnapshot | None:
        """Return the lake snapshot of an id, or None."""
        ...

    async def prepare(
        self,
        table: TableInfo,
        tiering_epoch: int,
        log_end_offsets: Mapping[TableBucket, int],
        *,
        ignore_previous: bool,
    ) -> str:
        """Write the offsets file of the running round's lake snapshot, and return its path.

        Args:
            table: The table.
            tiering_epoch: The epoch of the round.
            log_end_offsets: The offset up to which each bucket will be in the lake.
            ignore_previous: Whether to leave out the offsets of the newest lake snapshot.

        Raises:
            FlussTieringError: The errors of `LakeTieringManager.require_round` and `prepared_offsets`.
        """
        ...

    async def commit(self, commit: CommitRegistration) -> None:
        """Register the running round's lake snapshot. A repeated call changes nothing.

        Raises:
            FlussTieringError: The errors of `prepare`; INVALID_REQUEST if the snapshot is known with other offsets, or
                if the offsets file does not exist.
        """
        ...
