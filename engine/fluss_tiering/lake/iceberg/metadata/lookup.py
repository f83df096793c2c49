"""Looks into the metadata of an Iceberg table for the files of a partition."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import reduce

from py4j.java_gateway import JavaObject, JVMView

from fluss_tiering.lake.iceberg.java import elements, iceberg_class


def has_rows(jvm: JVMView, table: JavaObject, partition_values: Sequence[str], buckets: Collection[int]) -> bool:
    """Return whether a table has data files in one of the buckets of a partition. Errors are those of the JVM.

    The bounds in the list of manifests usually rule out a partition that is new, without reading any manifest.

    Args:
        jvm: The JVM of the Spark session.
        table: Iceberg's table object.
        partition_values: The value of each partition key.
        buckets: The numbers of the buckets.
    """
    expressions = iceberg_class(jvm, "expressions.Expressions")
    schema = table.schema()
    *keys, by_bucket = elements(table.spec().fields())
    numbers = jvm.java.util.ArrayList()
    for bucket in buckets:
        numbers.add(bucket)
    name = schema.findColumnName(by_bucket.sourceId())
    transform = str(by_bucket.transform())
    term = name if transform == "identity" else expressions.bucket(name, _buckets_of(transform))
    wanted = getattr(expressions, "in")(term, numbers)
    for key, value in zip(keys, partition_values, strict=True):
        wanted = getattr(expressions, "and")(
            wanted, expressions.equal(table.schema().findColumnName(key.sourceId()), value)
        )
    files = table.newScan().filter(wanted).planFiles()
    try:
        return bool(files.iterator().hasNext())
    finally:
        files.close()


def in_partitions_with(jvm: JVMView, table: JavaObject, partitions: Collection[Sequence[str]]) -> JavaObject | None:
    """Return Iceberg's expression for the rows of some partitions; None if it would have to be for all rows.

    Errors are those of the JVM.

    Args:
        jvm: The JVM of the Spark session.
        table: Iceberg's table object, whose last partition field is the bucket.
        partitions: The values of the partition keys of each partition, at least one.
    """
    expressions = iceberg_class(jvm, "expressions.Expressions")
    schema = table.schema()
    *keys, _ = elements(table.spec().fields())
    if not keys or any(str(schema.findType(key.sourceId())) != "string" for key in keys):
        return None
    names = [schema.findColumnName(key.sourceId()) for key in keys]
    each = [
        reduce(getattr(expressions, "and"), (expressions.equal(*pair) for pair in zip(names, values, strict=True)))
        for values in partitions
    ]
    return reduce(getattr(expressions, "or"), each)


def _buckets_of(transform: str) -> int:
    """Return the number of buckets of a transform like `bucket[4]`."""
    return int(transform.partition("[")[2].rstrip("]"))
