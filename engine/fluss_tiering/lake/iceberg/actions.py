"""Iceberg's own actions on a lake table through its Java API, which needs no Spark table.

Spark opens no Iceberg table with a TIME column, so that no SQL procedure can be called on it. These actions only look
at metadata, and work for every table.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from py4j.java_gateway import JavaObject, JVMView
from pyspark.sql import SparkSession

from fluss_tiering.lake.iceberg.deletes import FIRST_WITH_VECTORS
from fluss_tiering.lake.iceberg.java import JAVA_ERRORS, iceberg_class, java_session_of, jvm_of
from fluss_tiering.lake.iceberg.metadata.jvm_functions import functions_of
from fluss_tiering.lake.iceberg.metadata.unreadable import check_current_snapshot
from fluss_tiering.lake.iceberg.shuffles import joins_of_any_size
from fluss_tiering.lake.shared_folder import local_path

_COUNTS: Final = (
    "deletedDataFilesCount",
    "deletedEqualityDeleteFilesCount",
    "deletedPositionDeleteFilesCount",
    "deletedManifestsCount",
    "deletedManifestListsCount",
    "deletedStatisticsFilesCount",
)


def expire(spark: SparkSession, table: JavaObject, snapshot_ids: Sequence[int]) -> int:
    """Expire exactly these snapshots, delete the files that only they need, and return how many were deleted.

    Nothing is expired if the metadata of the current snapshot cannot be read, since the older ones may then be all that
    readers have. Whether its data files are there is not looked at.

    Args:
        spark: The session.
        table: Iceberg's table object, as it is now.
        snapshot_ids: The snapshots.

    Raises:
        FlussTieringError: CORRUPT_DATA if a metadata file of the current snapshot is missing or damaged.
        Py4JError: The errors of the JVM.
        PySparkException: The errors of the JVM.
    """
    check_current_snapshot(jvm_of(spark), table)
    deleted = _expire_oldest(jvm_of(spark), table, snapshot_ids)
    if deleted is not None:
        return deleted
    # By age alone, Iceberg would expire others, too.
    # Otherwise the driver would hold the names of all files that it deletes.
    action = spark_actions(spark).expireSnapshots(table).expireOlderThan(0).option("stream-results", "true")
    for snapshot_id in snapshot_ids:
        action = action.expireSnapshotId(snapshot_id)
    with joins_of_any_size(spark):
        result = action.execute()
    return sum(int(getattr(result, count)()) for count in _COUNTS)


def _expire_oldest(jvm: JVMView, table: JavaObject, snapshot_ids: Sequence[int]) -> int | None:
    """Expire the oldest snapshots, and return how many files were deleted; None if these are not just the oldest ones.

    Iceberg then reads the lists of manifests, and of the manifests those in which the expired snapshots have removed
    files. Spark's action compares the names of all files of all snapshots, which takes many times as long for a table
    with thousands of them. Iceberg would leave the files that the oldest snapshot left has removed until that one
    expires, although nothing refers to them any more. They are deleted here.
    """
    metadata, history = table.operations().current(), iceberg_class(jvm, "util.SnapshotUtil")
    if int(metadata.formatVersion()) >= FIRST_WITH_VECTORS:
        # A Puffin file may hold vectors of several data files, and Iceberg would delete it with the first of them.
        return None
    ancestors, expired = history.currentAncestorIds(table), set(snapshot_ids)
    if ancestors.size() != metadata.snapshots().size():
        return None
    newest = max(int(table.snapshot(each).timestampMillis()) for each in snapshot_ids)
    rule = table.expireSnapshots().expireOlderThan(newest + 1).retainLast(1)
    if {int(snapshot.snapshotId()) for snapshot in rule.apply()} != expired:
        return None
    # Iceberg goes on if it cannot read the manifests of a snapshot that is left, and would delete them. A manifest that
    # an expired snapshot and a later one have is also in the oldest one that is left.
    oldest = table.snapshot(ancestors[-1 - len(expired)])
    needed = jvm.java.util.HashSet()
    for manifest in oldest.allManifests(table.io()):
        needed.add(manifest.path())
    removed = _removed_by(jvm, table, oldest)
    # Nobody needs the metadata of a snapshot that expires. What it has removed was deleted when it became the oldest.
    with suppress(*JAVA_ERRORS):
        needed.addAll(_removed_by(jvm, table, table.snapshot(ancestors[-1])))
    # It takes the names of the files, so that Iceberg deletes nothing yet.
    names = jvm.java.util.stream.Stream.builder()
    rule.deleteWith(names).commit()
    unneeded = jvm.java.util.ArrayList(names.build().toList())
    unneeded.removeAll(needed)
    unneeded.addAll(removed)
    iceberg_class(jvm, "CatalogUtil").deleteFiles(table.io(), unneeded, "expired", True)
    return int(unneeded.size())


def _removed_by(jvm: JVMView, table: JavaObject, snapshot: JavaObject) -> JavaObject:
    """Return the locations of the data files and delete files that a snapshot has removed, as a list of the JVM."""
    files, functions = jvm.java.util.ArrayList(), functions_of(jvm)
    add_all = iceberg_class(jvm, "relocated.com.google.common.collect.Iterables").addAll
    add_all(files, snapshot.removedDataFiles(table.io()))
    add_all(files, snapshot.removedDeleteFiles(table.io()))
    functions.replace_all(files, functions.method("ContentFile", "location", "java.lang.String"))
    return files


def unreferenced_files(spark: SparkSession, table: JavaObject, location: str, older_than_ms: int) -> list[str]:
    """Return the files of a folder that are older and that no snapshot of the table refers to, in order.

    Errors are those of the JVM.
    """
    # The action gives what it would delete to a consumer. A builder is one that deletes nothing.
    nothing = jvm_of(spark).java.util.stream.Stream.builder()
    action = spark_actions(spark).deleteOrphanFiles(table).location(location).olderThan(older_than_ms)
    # Prefix listing alone reaches object stores for which Hadoop has no file system. In folders Hadoop would start `ls`
    # for each file, to find out its rights, and would fail if the file is deleted before that.
    action = action.usePrefixListing(local_path(location) is None)
    with joins_of_any_size(spark):
        result = action.deleteWith(nothing).execute()
    return sorted(str(each) for each in result.orphanFileLocations())


def spark_actions(spark: SparkSession) -> JavaObject:
    """Return Iceberg's actions for a session."""
    return iceberg_class(jvm_of(spark), "spark.actions.SparkActions").get(java_session_of(spark))
