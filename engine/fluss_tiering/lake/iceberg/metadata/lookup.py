"""Looks into the metadata of an Iceberg table for the files of a partition."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from py4j.java_gateway import JavaObject, JVMView

from fluss_tiering.lake.iceberg.java import iceberg_class


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
    *keys, by_bucket = table.spec().fields()
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


def _buckets_of(transform: str) -> int:
    """Return the number of buckets of a transform like `bucket[4]`."""
    return int(transform.partition("[")[2].rstrip("]"))
