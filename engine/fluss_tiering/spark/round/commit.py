"""The commit of a round. It has three steps, and the driver may die after each of them.

a) The server checks the tiering epoch and writes the offsets file. b) The lake's compare-and-swap makes the files
visible, if nobody else has changed the table since the round began. This is the fence. c) The server checks the epoch
again and registers the lake snapshot. A driver that dies between b and c leaves a lake snapshot that the next round
registers (`recover`).

If the rounds of a table commit to a branch of the lake table, step c waits until the snapshot is published: Fluss is
told of nothing that the readers of main do not see. The history of the branch then says where the next round begins.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence

from fluss_tiering.client import TieringClient
from fluss_tiering.lake.files import LakeFile
from fluss_tiering.lake.protocol import LakeCatalog, LakeCommit, LakeTable, ReadOffsets
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake import LakeSnapshot
from fluss_tiering.model.table import TableInfo
from fluss_tiering.model.tiering import Claim
from fluss_tiering.spark.round.keepalive import RoundGuard
from fluss_tiering.spark.round.plan import RoundPlan
from fluss_tiering.spark.round.result import PieceResult

logger = logging.getLogger(__name__)


class LakeRewrittenError(FlussTieringError):
    """The error of a round that lost each of its commits against somebody who rewrites the lake table's data files.

    The table is as it should be, and so is the round: this is no failure of the table, however often it happens.
    """

    def __init__(self, conflict: FlussTieringError) -> None:
        super().__init__(
            ErrorCode.LAKE_CONFLICT,
            "data files were rewritten during each try to commit: let whoever compacts the lake table beside "
            f"tiering do so less often ({conflict.message})",
        )


def open_lake_table(client: TieringClient, catalog: LakeCatalog, table: TableInfo) -> LakeTable:
    """Open the lake table of a table, with the table's columns. It is created only if nothing was ever registered.

    Raises:
        FlussTieringError: LAKE_TABLE_MISMATCH if the lake table was renamed or dropped, or has another layout; STORAGE
            if the lake cannot be reached.
    """
    found = catalog.find_table(table, follow=True)
    if found is not None:
        return found
    known = client.lake_snapshot(table.path)
    if known is not None:
        raise missing_lake_table(table, known)
    return catalog.open_table(table)


def missing_lake_table(table: TableInfo, known: LakeSnapshot) -> FlussTieringError:
    """Return the error of a table whose lake table is gone, although a round has committed to it."""
    return FlussTieringError(
        ErrorCode.LAKE_TABLE_MISMATCH,
        f"lake table missing: {table.lake_path}, whose snapshot {known.snapshot_id} the last round committed: it was "
        "renamed or dropped. Give it its name back (ALTER TABLE ... RENAME TO), or register its newest metadata file "
        "again (CALL ... system.register_table). No other one is made in its place",
    )


def recover(
    client: TieringClient,
    lake: LakeTable,
    table: TableInfo,
    claim: Claim,
    read_offsets: ReadOffsets | None = None,
) -> LakeSnapshot | None:
    """Register a lake snapshot that was committed and not registered, with the offsets that it holds.

    It may be one of an earlier round, or of another tiering service of Fluss. If rounds commit to a branch, only what
    is published is registered. Return the lake snapshot that the next round comes after: the newest one that the
    server then knows, or a newer one of the branch.

    Args:
        read_offsets: Reads the offsets files of the storage; None if no other service tiers its tables.

    Raises:
        FlussTieringError: LAKE_TABLE_MISMATCH if the lake table is not the one that the server knows;
            FENCED_TIERING_EPOCH if the round has been replaced.
    """
    known = register_published(client, lake, table, claim, read_offsets)
    if lake.commits_to_main:
        return known
    ahead = lake.unregistered_commit(None if known is None else known.snapshot_id)
    return known if ahead is None else LakeSnapshot(table.table_id, ahead.snapshot_id, ahead.commit.log_end_offsets)


def register_published(
    client: TieringClient, lake: LakeTable, table: TableInfo, claim: Claim, read_offsets: ReadOffsets | None = None
) -> LakeSnapshot | None:
    """Register the newest lake snapshot of main: see `recover`. Return what the server then knows.

    Raises:
        FlussTieringError: LAKE_TABLE_MISMATCH if the lake table is not the one that the server knows;
            FENCED_TIERING_EPOCH if the round has been replaced.
    """
    known = client.lake_snapshot(table.path)
    found = lake.unregistered_commit(None if known is None else known.snapshot_id, read_offsets, published=True)
    if found is None:
        return known
    commit = found.commit
    logger.info(
        "registering the lake snapshot %d of %s, which was committed but not registered (epoch %d; 0: another service)",
        found.snapshot_id,
        table.path,
        commit.tiering_epoch,
    )
    client.commit_lake_snapshot(
        table, claim.tiering_epoch, found.snapshot_id, commit.log_end_offsets, commit.offsets_path, commit.commit_id
    )
    return LakeSnapshot(table.table_id, found.snapshot_id, commit.log_end_offsets)


def commit_round(
    client: TieringClient,
    lake: LakeTable,
    plan: RoundPlan,
    pieces: Sequence[PieceResult],
    *,
    table: TableInfo,
    guard: RoundGuard,
) -> int:
    """Commit a round that is not lost, and return the id of its lake snapshot.

    When the commit fails, files are deleted only if it is certain that no lake snapshot refers to them. Those of a
    conflict are left to the caller.

    Raises:
        FlussTieringError: FENCED_TIERING_EPOCH if the round has been replaced; LAKE_CONFLICT if somebody else changed
            the lake table; STORAGE if the lake cannot be written; UNAVAILABLE if the server cannot be reached.
    """
    epoch = guard.claim.tiering_epoch
    try:
        guard.check()
        offsets_path = client.prepare_lake_snapshot(table, epoch, plan.log_end_offsets)
    except FlussTieringError:
        lake.delete_files([file for piece in pieces for file in piece.files])
        raise
    commit = LakeCommit(
        table_id=table.table_id,
        tiering_epoch=epoch,
        commit_id=str(uuid.uuid4()),
        offsets_path=offsets_path,
        log_end_offsets=plan.log_end_offsets,
    )
    snapshot_id = lake.commit(_by_ordinal(plan, pieces), commit, plan.partition_values, plan.read_again, keep=True)
    if lake.commits_to_main:
        client.commit_lake_snapshot(table, epoch, snapshot_id, plan.log_end_offsets, offsets_path, commit.commit_id)
    return snapshot_id


def _by_ordinal(plan: RoundPlan, pieces: Sequence[PieceResult]) -> list[list[LakeFile]]:
    ordinals = 1 + max((piece.ordinal for piece in plan.pieces), default=0)
    files: list[list[LakeFile]] = [[] for _ in range(ordinals)]
    for piece, result in zip(plan.pieces, pieces, strict=True):
        files[piece.ordinal] += result.files
    return files
