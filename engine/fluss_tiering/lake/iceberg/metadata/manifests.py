"""Manifests that the driver writes itself, so that it does not hold the descriptions of very many files at once."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable

from py4j.java_gateway import JavaObject, JVMView

from fluss_tiering.lake.iceberg.java import iceberg_class
from fluss_tiering.lake.iceberg.metadata.jvm_functions import functions_of


class ManifestFiles:
    """Writes the manifests of one commit. Errors are those of the JVM.

    Args:
        jvm: The JVM of the Spark session.
        table: Iceberg's table object.

    Attributes:
        locations: The locations of the manifests that were begun.
    """

    def __init__(self, jvm: JVMView, table: JavaObject) -> None:
        self._jvm = jvm
        self._table = table
        self._name = str(uuid.uuid4())
        self.locations: list[str] = []

    def write(self, lists: Iterable[JavaObject]) -> JavaObject:
        """Write data files, which are Iceberg's own objects, into a new manifest, and return it.

        Args:
            lists: Lists of files, which are not empty. There is one list or more, and all files are of one partition
                spec, which need not be the table's default one.
        """
        # One list is made after the other: held all at once, the files take much memory.
        rest = iter(lists)
        first = next(rest)
        operations = self._table.operations()
        location = operations.metadataFileLocation(f"{self._name}-files-{len(self.locations)}.avro")
        self.locations.append(str(location))
        # Without the id of a snapshot, the files get that of the snapshot to which the manifest is appended.
        writer = iceberg_class(self._jvm, "ManifestFiles").write(
            operations.current().formatVersion(),
            self._table.specs().get(first.get(0).specId()),
            self._table.io().newOutputFile(location),
            None,
        )
        functions = functions_of(self._jvm)
        add = functions.method("ManifestWriter", "add", "void", "ContentFile").bindTo(writer)
        try:
            for files in itertools.chain([first], rest):
                functions.for_each(files, add)
        finally:
            writer.close()
        return writer.toManifestFile()
