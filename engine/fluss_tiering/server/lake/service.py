"""Lake snapshots as the services see them: known to this server alone, or to a Fluss cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from fluss_tiering.model.lake import LakeSnapshot
from fluss_tiering.model.table import TableBucket, TableInfo
from fluss_tiering.server.lake.manager import CommitRegistration


class LakeService(Protocol):
    """What can be asked of lake snapshots, and how one becomes known."""

    async def newest(self, table: TableInfo) -> LakeSnapshot | None:
        """The newest lake snapshot of a table, or None."""
        ...

    async def snapshot(self, table: TableInfo, snapshot_id: int) -> LakeSnapshot | None:
        """A lake snapshot by its id, or None."""
        ...

    async def prepare(
        self,
        table: TableInfo,
        tiering_epoch: int,
        log_end_offsets: Mapping[TableBucket, int],
        *,
        ignore_previous: bool,
    ) -> str:
        """Has the offsets file of the running round's lake snapshot written (S5), and returns its path.

        Raises:
            FlussTieringError: as `LakeTieringManager.require_round` and `LakeSnapshotManager.prepare`.
        """
        ...

    async def commit(self, commit: CommitRegistration) -> None:
        """Makes the running round's lake snapshot known (S5); again changes nothing.

        Raises:
            FlussTieringError: as `LakeTieringManager.require_round` and `LakeSnapshotManager.commit`; INVALID_REQUEST
                when its offsets file does not exist.
        """
        ...
