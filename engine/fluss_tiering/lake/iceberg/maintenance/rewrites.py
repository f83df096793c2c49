"""Rewrites of data files: which groups of files Iceberg would rewrite, and the rewrite of some partitions' groups.

Iceberg's own planner says what its rewrite would do, so that a plan and the rewrite agree. The planner only reads
manifests, in the driver, and starts no Spark job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final, TypeAlias

from py4j.java_gateway import JavaObject, JVMView
from pyspark.sql import SparkSession

from fluss_tiering.lake.iceberg.actions import spark_actions
from fluss_tiering.lake.iceberg.java import elements, iceberg_class, jvm_of
from fluss_tiering.lake.iceberg.metadata.properties import TARGET_FILE_SIZE, refuse, target_file_size
from fluss_tiering.lake.iceberg.shuffles import shuffles_of_its_size

_BUCKET: Final = "bucket["
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


def planned_groups(spark: SparkSession, table: JavaObject, options: Mapping[str, str]) -> list[FileGroup]:
    """Return the groups of files that a rewrite with these options would replace. Errors are those of the JVM.

    Args:
        spark: The session.
        table: Iceberg's table object, which has a snapshot.
        options: The options of the planner, as Iceberg names them.
    """
    jvm = jvm_of(spark)
    has_deletes = int(table.currentSnapshot().summary().get("total-delete-files") or 0) > 0
    found = []
    for group in planned_by_iceberg(spark, table, None, options):
        # A task counts its data file and the delete files that apply to it.
        deletes = _deletes(group.fileScanTasks()) if has_deletes else 0
        found.append(
            FileGroup(
                partition_values(jvm, group.info().partition()),
                int(group.inputFileNum()),
                int(group.inputFilesSizeInBytes()),
                max(1, int(group.expectedOutputFiles())),
                deletes,
            )
        )
    return found


def planned_by_iceberg(
    spark: SparkSession, table: JavaObject, where: JavaObject | None, options: Mapping[str, str]
) -> list[JavaObject]:
    """Return Iceberg's groups of files that a rewrite with these options would replace. Errors are those of the JVM.

    Args:
        spark: The session.
        table: Iceberg's table object, which has a snapshot.
        where: Iceberg's expression for the rows of some partitions; None for all of them.
        options: The options of the planner, as Iceberg names them.
    """
    jvm = jvm_of(spark)
    of_class = iceberg_class(jvm, "actions.BinPackRewriteFilePlanner")
    planner = of_class(table) if where is None else of_class(table, where)
    planner.init({**_largest(table), **options})
    lists = iceberg_class(jvm, "relocated.com.google.common.collect.Lists")
    # Each step of an iterator would be two calls.
    planned = lists.newArrayList(planner.plan().groups().iterator())
    return [planned.get(number) for number in range(planned.size())]


def target_file_bytes(table: JavaObject) -> int:
    """Return the size of data files that an Iceberg table wants. Errors are those of the JVM.

    Raises:
        FlussTieringError: LAKE_TABLE_MISMATCH if the table's property is no size.
    """
    text = table.properties().get(TARGET_FILE_SIZE)
    return _DEFAULT_TARGET_BYTES if text is None else target_file_size(str(table.name()), str(text))


def _largest(table: JavaObject) -> Mapping[str, str]:
    """Return the option that says how large a file may be that is not rewritten.

    A file that is as small as our tasks make it must not be rewritten again and again. Iceberg's own limit is not above
    a target size of one byte, which its planner refuses.
    """
    target = target_file_bytes(table)
    return {"max-file-size-bytes": str(max(int(target * _TOLERATED), target + _TOLERATED_BYTES))}


def _deletes(tasks: JavaObject) -> int:
    # To iterate over a Java list costs an exception of the JVM.
    return sum(int(tasks.get(number).filesCount()) - 1 for number in range(tasks.size()))


def rewrite(
    spark: SparkSession, table: JavaObject, partitions: Sequence[PartitionValues] | None, options: Mapping[str, str]
) -> Rewritten:
    """Rewrite the data files of some partitions in one commit by Spark. Errors are those of the JVM.

    Args:
        spark: The session.
        table: Iceberg's table object.
        partitions: The partitions, at least one, each once; None for all of them.
        options: The options of the rewrite, as Iceberg names them.
    """
    action = spark_actions(spark).rewriteDataFiles(table).options({**_largest(table), **options})
    if partitions is not None:
        action = action.filter(in_partitions(spark, table, partitions))
    with shuffles_of_its_size(spark):
        result = action.execute()
    return Rewritten(
        int(result.rewrittenDataFilesCount()),
        int(result.rewrittenBytesCount()),
        int(result.addedDataFilesCount()),
        int(result.removedDeleteFilesCount()),
    )


def rewrite_manifests(spark: SparkSession, table: JavaObject) -> int:
    """Merge the manifests of a table, and return how many there are fewer. Errors are those of the JVM.

    Raises:
        FlussTieringError: LAKE_TABLE_MISMATCH if the table's property for the size of manifests is not above 0.
    """
    size = table.properties().get(_MANIFEST_SIZE)
    if size is not None and int(size) <= 0:
        # Iceberg's commits take such a number, and its action divides by it.
        refuse(str(table.name()), _MANIFEST_SIZE, str(size), "a whole number above 0")
    with shuffles_of_its_size(spark):
        result = spark_actions(spark).rewriteManifests(table).execute()
    return len(list(result.rewrittenManifests())) - len(list(result.addedManifests()))


def partition_values(jvm: JVMView, partition: JavaObject) -> PartitionValues:
    """Return the values of Iceberg's partition object. Errors are those of the JVM."""
    any_class = jvm.java.lang.Class.forName("java.lang.Object")
    return tuple(_plain(partition.get(number, any_class)) for number in range(int(partition.size())))


def in_partitions(spark: SparkSession, table: JavaObject, partitions: Sequence[PartitionValues]) -> JavaObject:
    """Return Iceberg's expression for the rows of some partitions, at least one. Errors are those of the JVM."""
    expressions = iceberg_class(jvm_of(spark), "expressions.Expressions")
    if any(not values for values in partitions):
        return expressions.alwaysTrue()
    fields = elements(table.spec().fields())
    names = [str(table.schema().findColumnName(field.sourceId())) for field in fields]
    transforms = [str(field.transform()) for field in fields]
    each = [_exactly(expressions, names, transforms, values) for values in partitions]
    either = getattr(expressions, "or")
    # Iceberg visits an expression by recursion, which must not become as deep as there are partitions.
    while len(each) > 1:
        odd = each[len(each) // 2 * 2 :]
        each = [*map(either, each[::2], each[1::2]), *odd]
    return each[0]


def _exactly(
    expressions: JavaObject, names: Sequence[str], transforms: Sequence[str], values: PartitionValues
) -> JavaObject:
    conditions = []
    for name, transform, value in zip(names, transforms, values, strict=True):
        if value is None:
            conditions.append(expressions.isNull(name))
        elif transform.startswith(_BUCKET):
            term = expressions.bucket(name, int(transform.removeprefix(_BUCKET).removesuffix("]")))
            conditions.append(expressions.equal(term, value))
        else:
            conditions.append(expressions.equal(name, value))
    return reduce(getattr(expressions, "and"), conditions)


def _plain(value: object) -> str | int | None:
    # Iceberg reads text from a manifest as a CharSequence of its own.
    return value if value is None or isinstance(value, int) else str(value)
