"""Lake snapshots: they say how much of a table's log is in the lake."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from fluss_tiering.model.table import TableBucket

COMMIT_USER: Final = "__fluss_lake_tiering"
"""The value of `commit-user` by which Fluss marks the summary of a snapshot that tiering made."""


@dataclass(frozen=True, slots=True)
class LakeSnapshot:
    """A lake snapshot that is registered with the storage.

    Attributes:
        table_id: The table's id.
        snapshot_id: The id of the snapshot in the lake.
        log_end_offsets: The offset up to which each bucket's log is in the lake (exclusive). A bucket without an entry
            has nothing in the lake.
    """

    table_id: int
    snapshot_id: int
    log_end_offsets: Mapping[TableBucket, int] = field(default_factory=dict)
