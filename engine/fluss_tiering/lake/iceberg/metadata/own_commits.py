"""Our commits in the history of a lake table, and whether they are of the table that it is opened for."""

from __future__ import annotations

from py4j.java_gateway import JavaObject

from fluss_tiering.lake.iceberg.java import elements, lake_errors
from fluss_tiering.lake.iceberg.metadata.history import ancestors
from fluss_tiering.lake.iceberg.summary import from_summary
from fluss_tiering.lake.names import catalog_name, quoted
from fluss_tiering.lake.protocol import LakeCommit
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo


def newest_own_commit(table: TableInfo, handle: JavaObject) -> tuple[int, LakeCommit] | None:
    """Return the id of the newest snapshot of ours, and its commit; None if the history has none.

    Args:
        table: The table that the lake table is opened for.
        handle: Iceberg's table object.

    Raises:
        FlussTieringError: LAKE_TABLE_MISMATCH if the commit is of another table; STORAGE if the history cannot be read.
    """
    with lake_errors(f"read the history of the lake table {table.lake_path}"):
        for snapshot in ancestors(handle):
            commit = from_summary(snapshot.summary())
            if isinstance(commit, LakeCommit):
                require_same_table(table, commit)
                return int(snapshot.snapshotId()), commit
        return None


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


def explained_layout(table: TableInfo, handle: JavaObject, name: str, error: FlussTieringError) -> FlussTieringError:
    """Return the error of a lake table whose columns do not fit, or the error of one that was not only altered.

    Args:
        table: The table that the lake table is opened for.
        handle: Iceberg's table object.
        name: The name of the lake table in Spark SQL.
        error: What does not fit, and the statement that mends it. The statement would not bring the rows of the rounds
            back if somebody has replaced the lake table, or if it is another one.

    Raises:
        FlussTieringError: LAKE_TABLE_MISMATCH if the lake table holds the rows of another table; STORAGE if its
            history cannot be read.
    """
    if newest_own_commit(table, handle) is not None:
        return error
    with lake_errors(f"read the history of the lake table {table.lake_path}"):
        commits = {
            int(snapshot.snapshotId()): commit
            for snapshot in elements(handle.snapshots())
            if (commit := from_summary(snapshot.summary())) is not None
        }
    own = [snapshot_id for snapshot_id, commit in commits.items() if isinstance(commit, LakeCommit)]
    if own:
        query = f"SELECT file FROM {name}.metadata_log_entries WHERE latest_snapshot_id = {own[-1]}"  # noqa: S608
        return mismatch(
            table,
            f"it was replaced, for example by CREATE OR REPLACE TABLE, after the snapshot {own[-1]} of the last round",
            f"find the metadata file from before: {query}. Then rename the table away, and register this file under "
            "its name with Spark's procedure register_table",
        )
    if commits:
        return error
    return FlussTieringError(
        error.code,
        f"tiering has committed nothing to the lake table {name}: if it is another one, rename it away and give the "
        f"right one its name back. Otherwise {error.message}",
    )


def procedure_call(table: TableInfo, procedure: str, snapshot_id: int) -> str:
    """Return the call of a procedure of Iceberg that takes a snapshot of a lake table, in Spark SQL."""
    catalog = quoted(catalog_name(table.lake_catalog_properties))
    return f"CALL {catalog}.system.{procedure}(table => '{table.lake_path}', snapshot_id => {snapshot_id})"


def mismatch(table: TableInfo, difference: str, remedy: str) -> FlussTieringError:
    """Return the error of a lake table that does not belong to the table."""
    return FlussTieringError(
        ErrorCode.LAKE_TABLE_MISMATCH,
        f"the lake table {table.lake_path} does not belong to the table: {difference}; {remedy}",
    )
