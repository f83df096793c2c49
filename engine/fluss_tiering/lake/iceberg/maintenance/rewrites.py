"""Rewrites of data files: which groups of files Iceberg would rewrite, and the rewrite of some partitions' groups.

Iceberg's own planner says what its rewrite would do, so that a plan and the rewrite agree. The planner only reads
manifests, in the driver, and starts no Spark job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from pyspark.sql import SparkSession

from fluss_tiering.lake.iceberg.actions import shuffles_of_its_size
from fluss_tiering.lake.iceberg.java import java_session_of
from fluss_tiering.lake.iceberg.library import JavaTable, ask, call
from fluss_tiering.lake.iceberg.metadata.properties import TARGET_FILE_SIZE, refuse, target_file_size

_MANIFEST_SIZE: Final = "commit.manifest.target-size-bytes"
_DEFAULT_TARGET_BYTES: Final = 512 << 20
_TOLERATED: Final = 1.8
"""A file may be larger than the target size by this factor, as by Iceberg's default."""
_TOLERATED_BYTES: Final = 128 << 20
"""A file may be larger than the target size by this at least. Our tasks end a file between two buffers of rows."""

PartitionValues: TypeAlias = tuple[str | int | None, ...]
"""The values of a partition's fields, in the order of the table's partition spec."""


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Data files of one partition that a rewrite would replace together.

    Attributes:
        partition: The values of the partition.
        files: The number of the data files.
        bytes: Their size.
        new_files: About how many files would replace them.
        deletes: How many delete files apply to the data files. One that applies to two data files counts twice.
    """

    partition: PartitionValues
    files: int
    bytes: int
    new_files: int
    deletes: int


@dataclass(frozen=True, slots=True)
class Part:
    """How much of a partition is rewritten at most.

    Iceberg's planner forms other groups each time, since it puts the files into them in the order in which its threads
    read the manifests. So what was planned before cannot be named by its groups.

    Attributes:
        bytes: The size of the data files.
        files: About how many files these are. A rewrite by Spark has this limit only: Iceberg's action knows no other.
    """

    bytes: int
    files: int


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What a rewrite did.

    Attributes:
        files: How many data files were replaced.
        bytes: Their size.
        new_files: How many data files replaced them.
        delete_files: How many delete files were removed, because they apply to nothing any more.
    """

    files: int = 0
    bytes: int = 0
    new_files: int = 0
    delete_files: int = 0

    def __add__(self, other: Rewritten) -> Rewritten:
        return Rewritten(
            self.files + other.files,
            self.bytes + other.bytes,
            self.new_files + other.new_files,
            self.delete_files + other.delete_files,
        )


def planned_groups(table: JavaTable, options: Mapping[str, str]) -> list[FileGroup]:
    """Return the groups of files that a rewrite with these options would replace. Errors are those of the JVM.

    Args:
        table: The table, which has a snapshot.
        options: The options of the planner, as Iceberg names them.
    """
    found = ask(table, "plannedGroups", {"partitions": None, "options": {**largest(table), **options}})
    return [
        FileGroup(tuple(partition), files, size, max(1, new_files), deletes)
        for partition, files, size, new_files, deletes in found
    ]


def target_file_bytes(table: JavaTable) -> int:
    """Return the size of data files that an Iceberg table wants. Errors are those of the JVM.

    Raises:
        FlussTieringError: LAKE_TABLE_MISMATCH if the table's property is no size.
    """
    text = call(table, "property", TARGET_FILE_SIZE)
    return _DEFAULT_TARGET_BYTES if text is None else target_file_size(str(table.name()), text)


def largest(table: JavaTable) -> Mapping[str, str]:
    """Return the option that says how large a file may be that is not rewritten.

    A file that is as small as our tasks make it must not be rewritten again and again. Iceberg's own limit is not above
    a target size of one byte, which its planner refuses.
    """
    target = target_file_bytes(table)
    return {"max-file-size-bytes": str(max(int(target * _TOLERATED), target + _TOLERATED_BYTES))}


def rewrite(
    spark: SparkSession, table: JavaTable, partitions: Sequence[PartitionValues] | None, options: Mapping[str, str]
) -> Rewritten:
    """Rewrite the data files of some partitions in one commit by Spark. Errors are those of the JVM.

    Args:
        partitions: The partitions, at least one, each once; None for all of them.
        options: The options of the rewrite, as Iceberg names them.
    """
    asked = {"partitions": partitions, "options": {**largest(table), **options}}
    with shuffles_of_its_size(spark):
        return Rewritten(*ask(table, "rewriteDataFiles", java_session_of(spark), asked))


def rewrite_manifests(spark: SparkSession, table: JavaTable) -> int:
    """Merge the manifests of a table, and return how many there are fewer. Errors are those of the JVM.

    Raises:
        FlussTieringError: LAKE_TABLE_MISMATCH if the table's property for the size of manifests is not above 0.
    """
    size = call(table, "property", _MANIFEST_SIZE)
    if size is not None and int(size) <= 0:
        # Iceberg's commits take such a number, and its action divides by it.
        refuse(str(table.name()), _MANIFEST_SIZE, size, "a whole number above 0")
    with shuffles_of_its_size(spark):
        return int(ask(table, "rewriteManifestsBy", java_session_of(spark)))
