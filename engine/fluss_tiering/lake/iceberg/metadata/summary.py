"""Our commits in the summary of an Iceberg snapshot.

`commit-user` and `fluss-offsets` are Fluss's own properties (`IcebergLakeCommitter`, `TieringCommitOperator`), which
Fluss's readers use. The others are ours. With them a snapshot itself says which table, round and attempt made it, and
up to which offsets. A round that restarts therefore needs no other record.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from fluss_tiering.lake.protocol import ForeignCommit, LakeCommit
from fluss_tiering.model.lake import COMMIT_USER
from fluss_tiering.model.table import TableBucket

COMMIT_ID: Final = "fluss-tiering.commit-id"
COMMIT_USER_KEY: Final = "commit-user"
_OFFSETS_PATH: Final = "fluss-offsets"
_TABLE_ID: Final = "fluss-tiering.table-id"
_EPOCH: Final = "fluss-tiering.epoch"
_OFFSETS: Final = "fluss-tiering.offsets"
_OFFSETS_FILE: Final = "fluss-tiering.offsets-file"
OFFSETS_KEYS: Final = (_OFFSETS, _OFFSETS_FILE)
"""One of these is in the summary of a commit of ours, and not in that of another tiering service."""
_MAX_OFFSETS_LENGTH: Final = 8 << 10
"""The length of the offsets in a summary: those of some 800 buckets. Longer ones lie in a file of their own."""


def offsets_fit(commit: LakeCommit) -> bool:
    """Return whether the offsets of a commit are short enough for a summary."""
    return len(_offsets_text(commit)) <= _MAX_OFFSETS_LENGTH


def to_summary(commit: LakeCommit) -> dict[str, str]:
    """Return the summary properties of the snapshot that completes a commit."""
    return {
        COMMIT_USER_KEY: COMMIT_USER,
        _OFFSETS_PATH: commit.offsets_path,
        COMMIT_ID: commit.commit_id,
        _TABLE_ID: str(commit.table_id),
        _EPOCH: str(commit.tiering_epoch),
        **({_OFFSETS: _offsets_text(commit)} if commit.lake_offsets is None else {_OFFSETS_FILE: commit.lake_offsets}),
    }


def _offsets_text(commit: LakeCommit) -> str:
    offsets = {_bucket_text(bucket): offset for bucket, offset in commit.log_end_offsets.items()}
    return json.dumps(offsets, separators=(",", ":"))


def from_summary(summary: Mapping[str, str]) -> LakeCommit | ForeignCommit | None:
    """Return the commit that a snapshot completes; None for a snapshot of somebody else, or inside a commit.

    If its offsets lie in a file of the lake, the commit names the file and has no offsets yet.
    """
    if summary.get(COMMIT_USER_KEY) != COMMIT_USER:
        return None
    if _OFFSETS not in summary and _OFFSETS_FILE not in summary:
        return ForeignCommit(summary.get(_OFFSETS_PATH) or "")
    table_id = int(summary[_TABLE_ID])
    offsets = json.loads(summary.get(_OFFSETS) or "{}")
    return LakeCommit(
        table_id=table_id,
        tiering_epoch=int(summary[_EPOCH]),
        commit_id=summary[COMMIT_ID],
        offsets_path=summary[_OFFSETS_PATH],
        log_end_offsets={_bucket(table_id, text): offset for text, offset in offsets.items()},
        lake_offsets=summary.get(_OFFSETS_FILE),
    )


def _bucket_text(bucket: TableBucket) -> str:
    """Return the bucket's number, after the id of its partition if it has one: `3` or `17/3`."""
    return str(bucket.bucket) if bucket.partition_id is None else f"{bucket.partition_id}/{bucket.bucket}"


def _bucket(table_id: int, text: str) -> TableBucket:
    partition_id, slash, number = text.rpartition("/")
    return TableBucket(table_id, int(number), int(partition_id) if slash else None)
