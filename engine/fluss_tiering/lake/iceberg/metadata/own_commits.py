"""Our commits in the history of a lake table, and whether they are of the table that it is opened for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluss_tiering.lake.iceberg.java import lake_errors
from fluss_tiering.lake.iceberg.library import JavaTable, ask
from fluss_tiering.lake.iceberg.metadata.summary import COMMIT_USER_KEY, OFFSETS_KEYS, from_summary
from fluss_tiering.lake.names import lake_table_name, procedure_call, quoted
from fluss_tiering.lake.protocol import CommittedSnapshot, ForeignCommit, LakeCommit, ReadOffsets
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake import COMMIT_USER
from fluss_tiering.model.table import TableInfo
from fluss_tiering.model.table_options import commit_branch_of


def newest_own_commit(table: TableInfo, handle: JavaTable) -> tuple[int, LakeCommit] | None:
    """Return the id of the newest snapshot of ours, and its commit; None if the history has none.

    Raises:
        FlussTieringError: LAKE_TABLE_MISMATCH if the commit is of another table; STORAGE if the history cannot be read.
    """
    with lake_errors(f"read the history of the lake table {table.lake_path}"):
        commits = history_of(handle, None, OFFSETS_KEYS)["commits"]
    for snapshot_id, summary in commits:
        commit = from_summary(summary)
        if isinstance(commit, LakeCommit):
            require_same_table(table, commit)
            return int(snapshot_id), commit
    return None


def history_of(
    handle: JavaTable, known: int | None, keys: Sequence[str] = (), *, published: bool = False
) -> dict[str, Any]:
    """Return the commits of tiering, the newest first, and whether a known snapshot was reached.

    Errors are those of the JVM.

    Args:
        handle: The table in the JVM.
        known: The snapshot at which the history ends; None for the whole history. With one, also expired snapshots are
            looked at that older metadata files still describe.
        keys: The newest commit that has one of these in its summary is the last one that is wanted.
        published: Whether the history is that of main, also if rounds commit to another branch.
    """
    asked = {"known": known, "userKey": COMMIT_USER_KEY, "user": COMMIT_USER, "keys": keys, "published": published}
    return dict(ask(handle, "commits", asked))


def require_same_table(table: TableInfo, commit: LakeCommit) -> None:
    """Check that a commit is of the table that the lake table is opened for.

    Raises:
        FlussTieringError: LAKE_TABLE_MISMATCH if it is of another one.
    """
    if commit.table_id != table.table_id:
        raise mismatch(
            table,
            f"it holds the rows of the table with the id {commit.table_id}, while {table.path} has the id "
            f"{table.table_id}: either the table was dropped and created again, or lake tables were renamed",
            f"if `fluss-tiering tables list` shows no table with the id {commit.table_id}, drop or rename the lake "
            "table. If it shows one, keep the lake table, and give the lake tables their names back",
        )


def committed_snapshot(
    table: TableInfo,
    newest: tuple[int, LakeCommit | ForeignCommit] | None,
    known: int | None,
    read_offsets: ReadOffsets | None,
) -> CommittedSnapshot | None:
    """Return a commit with its offsets, which for one of another tiering service are read from their file."""
    if newest is None:
        return None
    snapshot_id, commit = newest
    if isinstance(commit, LakeCommit):
        return CommittedSnapshot(snapshot_id, commit)
    undo = "" if known is None else f", or go back to what is registered: {_made_current(table, known)}"
    if read_offsets is None:
        raise mismatch(
            table,
            f"another tiering service of Fluss committed the snapshot {snapshot_id}, which is not registered",
            f"tier the table, which registers that snapshot{undo}",
        )
    try:
        offsets = read_offsets(commit.offsets_path)
    except FlussTieringError as error:
        raise mismatch(
            table,
            f"another tiering service of Fluss committed the snapshot {snapshot_id}, which is not registered, and "
            f"its offsets cannot be read ({error.message})",
            f"let that service end its round, or bring the file back{undo}",
        ) from None
    identity = f"snapshot-{snapshot_id}"
    return CommittedSnapshot(snapshot_id, LakeCommit(table.table_id, 0, identity, commit.offsets_path, offsets))


def missing_snapshot(table: TableInfo, handle: JavaTable, known: int, *, on_main: bool) -> FlussTieringError:
    """Return the error of a lake table whose history lacks the snapshot that the storage knows.

    Args:
        handle: The lake table in the JVM.
        on_main: Whether the history is that of main, or of the branch that rounds commit to.
    """
    if not on_main:
        branch = commit_branch_of(table.descriptor.properties)
        return mismatch(
            table,
            f"its branch {branch!r} does not come from the snapshot {known}, the newest one of main that Fluss knows: "
            "the branch was moved, or rounds have committed to main since it was made",
            f"drop the branch: ALTER TABLE {lake_table_name(table)} DROP BRANCH {quoted(branch)}. The next round makes "
            "it again from main, and tiers what main lacks",
        )
    said = f"its history does not hold the snapshot {known} that the last round committed"
    if ask(handle, "summary", known) is None:
        return mismatch(
            table,
            f"{said}: another lake table has this name now, the lake was restored from an older backup than the "
            "tables, or the lake table was rolled back and that snapshot expired",
            "rename this one away and give the right one its name back, or restore the lake of the same time as "
            "the tables; if there is none any more, drop the lake table and the table, and write the rows again",
        )
    return mismatch(
        table,
        f"{said}: it was rolled back or replaced",
        f"make that snapshot the current one again: {_made_current(table, known)}",
    )


def _made_current(table: TableInfo, snapshot_id: int) -> str:
    return procedure_call(table, "set_current_snapshot", f"snapshot_id => {snapshot_id}")


def mismatch(table: TableInfo, difference: str, remedy: str) -> FlussTieringError:
    """Return the error of a lake table that does not belong to the table."""
    return FlussTieringError(
        ErrorCode.LAKE_TABLE_MISMATCH,
        f"the lake table {table.lake_path} does not belong to the table: {difference}; {remedy}",
    )
