"""Publishing: main moves forward to a snapshot of the branch that rounds commit to, and Fluss is told of it.

Main moves in one commit of the catalog. What comes after it, telling Fluss, is done here or by the next round, which
begins with it: a table has one round at a time, and publishing does not wait for one that runs.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import time
import uuid
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark.sql import SparkSession

from fluss_tiering.client import TieringClient
from fluss_tiering.lake.iceberg.catalog import IcebergCatalogs
from fluss_tiering.lake.iceberg.java import lake_errors
from fluss_tiering.lake.iceberg.library import ask
from fluss_tiering.lake.iceberg.metadata.summary import OFFSETS_KEYS
from fluss_tiering.lake.iceberg.table import IcebergTable
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake import nothing_tiered
from fluss_tiering.model.table import TableInfo, TablePath
from fluss_tiering.model.table_options import LAKE_COMMIT_BRANCH, commit_branch_of
from fluss_tiering.model.tiering import HeartbeatEntry, RoundOrigin, TieringStats
from fluss_tiering.spark.round.commit import register_published

_TAG: Final = re.compile(r"[\w.:+-]{1,200}")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Publication:
    """What publishing did with a lake table.

    Attributes:
        path: The table.
        seconds: How long it took, in seconds.
        branch: The branch that rounds commit to.
        snapshot_id: The newest snapshot of main now; None if nothing was published.
        rounds: How many rounds the readers of main see for the first time.
        rows: How many rows these have added. A row that was changed in two rounds counts twice.
        tag: The tag that the snapshot has; None if it got none.
        known: Whether Fluss knows the snapshot. Otherwise the next round tells it.
        error: The reason of a failure; None if it worked.
    """

    path: TablePath
    seconds: float = 0.0
    branch: str = ""
    snapshot_id: int | None = None
    rounds: int = 0
    rows: int = 0
    tag: str | None = None
    known: bool = False
    error: str | None = None


def publish_table(
    client: TieringClient,
    spark: SparkSession,
    table: TableInfo,
    *,
    snapshot: int | None = None,
    tag: str | None = None,
) -> Publication:
    """Publish what rounds of a table have committed to its branch. A failure is part of the result.

    To publish again what was published changes nothing.

    Args:
        snapshot: The id of the snapshot to publish; None for the newest one of the branch.
        tag: The tag that the snapshot gets; None for none.
    """
    began, catalog = time.perf_counter(), IcebergCatalogs(spark)
    try:
        done = publish(client, catalog, table, snapshot, tag)
    except FlussTieringError as error:
        done = Publication(table.path, error=error.message)
    return replace(done, seconds=time.perf_counter() - began)


def publish(
    client: TieringClient,
    catalog: IcebergCatalogs,
    table: TableInfo,
    snapshot: int | None = None,
    tag: str | None = None,
) -> Publication:
    """Publish what rounds of a table have committed to its branch: see `publish_table`.

    Raises:
        FlussTieringError: INVALID_REQUEST if rounds of the table commit to main, or if the tag is wrong or taken;
            LAKE_SNAPSHOT_NOT_EXIST if the branch has no such snapshot, or no round has committed; LAKE_CONFLICT if
            somebody has changed rows of main; LAKE_TABLE_MISMATCH if main was rolled back, or if the branch is a tag;
            STORAGE if the lake cannot be reached.
    """
    branch = commit_branch_of(table.descriptor.properties)
    if branch == LAKE_COMMIT_BRANCH.default:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"rounds of {table.path} commit to main, so that all of it is published: set the table option "
            f"{LAKE_COMMIT_BRANCH.key} to the name of a branch for its rounds",
        )
    if tag is not None and (tag in (LAKE_COMMIT_BRANCH.default, branch) or not _TAG.fullmatch(tag)):
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"the tag {tag!r}: expected 1 to 200 letters, digits or one of _ . : + -, and not main or {branch}",
        )
    lake = catalog.find_table(table)
    if lake is None:
        raise nothing_tiered(table)
    known = client.lake_snapshot(table.path)
    # This fails if main was rolled back. Publishing would undo that.
    lake.unregistered_commit(None if known is None else known.snapshot_id, published=True)
    with lake_errors(f"publish the branch {branch!r} of the lake table {table.lake_path}"):
        asked = {"snapshot": snapshot, "tag": tag, "keys": OFFSETS_KEYS}
        found = ask(lake.java_table, "publish", asked)
    if found["refused"] is not None:
        raise _refused(table, branch, found, snapshot, tag)
    return Publication(
        table.path,
        branch=branch,
        snapshot_id=found["snapshot"],
        rounds=found["commits"],
        rows=found["rows"],
        tag=tag,
        known=(known is not None and known.snapshot_id == lake.published()) or _tell_fluss(client, lake, table),
    )


def _refused(
    table: TableInfo, branch: str, found: dict[str, Any], snapshot: int | None, tag: str | None
) -> FlussTieringError:
    lake = table.lake_path
    match found["refused"]:
        case "nothing":
            return nothing_tiered(table)
        case "elsewhere":
            return FlussTieringError(
                ErrorCode.LAKE_SNAPSHOT_NOT_EXIST,
                f"the snapshot {snapshot} is not in the history of the branch {branch!r} of the lake table {lake}: "
                "expected one that rounds have committed to it and that has not expired",
            )
        case "tag":
            return FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"the lake table {lake} has a tag or a branch with the name {tag!r} at another snapshot: expected a "
                "new name; nothing was published",
            )
        case _:
            return FlussTieringError(
                ErrorCode.LAKE_CONFLICT,
                f"main of the lake table {lake} is at snapshot {found['main']}, from which the branch {branch!r} does "
                "not come: somebody has changed rows of main, or has moved it or the branch; nothing was published. "
                "Move main back to what was published last, or drop the branch, which the next round makes again",
            )


def _tell_fluss(client: TieringClient, lake: IcebergTable, table: TableInfo) -> bool:
    """Register the newest snapshot of main, in a round of its own. Return whether Fluss knows it.

    A table whose rounds fail stays Failed: such a round would look like a success.
    """
    (status,) = client.list_tiering_statuses(table.path)
    if status.consecutive_failures:
        return False
    driver = f"publish, on {socket.gethostname()}"
    lease, origin = f"fluss-tiering-publish-{uuid.uuid4()}", RoundOrigin.of_process(os.environ)
    (claim,) = client.claim_tables([table.path], lease, None, driver, origin=origin)
    if isinstance(claim, FlussTieringError):
        logger.info("%s is published, and the next round tells Fluss of it: %s", table.path, claim.message)
        return False
    entry = HeartbeatEntry(claim.table_id, claim.tiering_epoch, coordinator_epoch=claim.coordinator_epoch)
    try:
        register_published(client, lake, table, claim)
    except FlussTieringError as error:
        client.heartbeat(failed=[replace(entry, error_message=error.message)])
        raise
    client.heartbeat(finished=[replace(entry, stats=TieringStats())])
    return True
