"""Lake snapshots: what of a table's log is in the lake."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from fluss_tiering.model.table import TableBucket

COMMIT_USER: Final = "__fluss_lake_tiering"
"""Fluss's mark in the summary of a snapshot made by tiering (`commit-user`)."""


@dataclass(frozen=True, slots=True)
class LakeSnapshot:
    """A lake snapshot that the storage knows: bucket -> log end offset (exclusive)."""

    table_id: int
    snapshot_id: int
    log_end_offsets: Mapping[TableBucket, int] = field(default_factory=dict)
