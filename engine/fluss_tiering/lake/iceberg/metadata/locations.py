"""Where the data files of an Iceberg table are placed."""

from __future__ import annotations

from typing import Final

from py4j.java_gateway import JavaObject, JVMView

from fluss_tiering.lake.iceberg.java import iceberg_class


class FileLocations:
    """Asks Iceberg's location provider for the locations of files.

    Iceberg's default provider places a file in the folder of its partition. One call per partition is then enough,
    while a round may have files in a hundred thousand buckets.

    Args:
        jvm: The JVM of the Spark session.
        table: Iceberg's table object.
        spec_id: The id of the partition spec of the files. It need not be the table's default one.
        by_bucket: Whether its last field is the bucket.
    """

    def __init__(self, jvm: JVMView, table: JavaObject, spec_id: int, *, by_bucket: bool = True) -> None:
        self._jvm = jvm
        self._by_bucket = by_bucket
        self._spec = table.specs().get(spec_id)
        self._provider = table.locationProvider()
        self._folders: dict[tuple[str, ...], str | None] = {}

    def location(self, bucket: int, name: str, partition_values: tuple[str, ...]) -> str:
        """Return the location of a file. Errors are those of the JVM."""
        if partition_values not in self._folders:
            self._folders[partition_values] = self._folder(partition_values)
        folder = self._folders[partition_values]
        return folder + self._end(bucket, name) if folder else self._asked(bucket, name, partition_values)

    def _end(self, bucket: int, name: str) -> str:
        return f"{bucket}/{name}" if self._by_bucket else name

    def _folder(self, partition_values: tuple[str, ...]) -> str | None:
        """Return what comes before the bucket's number in each location; None if the names of files decide more."""
        places = {(bucket, name): self._asked(bucket, name, partition_values) for bucket, name in _PROBES}
        suffix = self._end(*_PROBES[0])
        first = places[_PROBES[0]]
        if not first.endswith(f"={suffix}" if self._by_bucket else f"/{suffix}"):
            return None
        folder = first.removesuffix(suffix)
        return folder if all(place == folder + self._end(*probe) for probe, place in places.items()) else None

    def _asked(self, bucket: int, name: str, partition_values: tuple[str, ...]) -> str:
        values = self._jvm.java.util.ArrayList()
        for value in (*partition_values, bucket) if self._by_bucket else partition_values:
            values.add(str(value))
        # By values and not by a path: Iceberg finds no field in a path if a column has "=" or "/" in its name.
        file = iceberg_class(self._jvm, "DataFiles").builder(self._spec).withPartitionValues(values)
        # What else a file must have says nothing here.
        file = file.withPath(name).withFormat("parquet").withFileSizeInBytes(0).withRecordCount(0)
        partition = file.build().partition()
        return str(self._provider.newDataLocation(self._spec, partition, name))


_PROBES: Final = ((0, "a-name"), (1, "another-name"))
"""The bucket and the name of files that are never written."""
