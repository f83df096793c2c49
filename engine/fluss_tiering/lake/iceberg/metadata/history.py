"""The history of an Iceberg table's main branch, also where it was expired."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from py4j.java_gateway import JavaObject, JVMView
from py4j.protocol import Py4JJavaError

from fluss_tiering.lake.iceberg.java import elements, iceberg_class, java_error_text

logger = logging.getLogger(__name__)


def ancestors(table: JavaObject) -> Iterator[JavaObject]:
    """Yield the current snapshot and those before it, as far as they are not expired. Errors are those of the JVM."""
    snapshot = table.currentSnapshot()
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parentId()
        snapshot = None if parent is None else table.snapshot(parent)


def ancestors_with_expired(jvm: JVMView, table: JavaObject) -> Iterator[JavaObject]:
    """Yield the current snapshot and those before it, also expired ones that older metadata files still describe.

    An expiry that is not ours may remove the snapshot that the storage knows. The older metadata files then prove that
    the current snapshot came from it. Errors are those of the JVM.
    """
    oldest = None
    for snapshot in ancestors(table):
        yield snapshot
        oldest = snapshot
    if oldest is None or oldest.parentId() is None:
        return
    expired = _ExpiredSnapshots(jvm, table)
    snapshot = expired.find(oldest.parentId())
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parentId()
        snapshot = None if parent is None else expired.find(parent)


class _ExpiredSnapshots:
    """Looks for snapshots in the metadata files that a table had before, the newest first. Each is read once."""

    def __init__(self, jvm: JVMView, table: JavaObject) -> None:
        self._parser = iceberg_class(jvm, "TableMetadataParser")
        self._io = table.io()
        self._left = [str(entry.file()) for entry in elements(table.operations().current().previousFiles())]
        self._read: list[JavaObject] = []

    def find(self, snapshot_id: int) -> JavaObject | None:
        for metadata in self._read:
            if (snapshot := metadata.snapshot(snapshot_id)) is not None:
                return snapshot
        while self._left:
            location = self._left.pop()
            try:
                metadata = self._parser.read(self._io, location)
            except Py4JJavaError as error:
                logger.debug("the older metadata file %s cannot be read: %s", location, java_error_text(error))
                continue
            self._read.append(metadata)
            if (snapshot := metadata.snapshot(snapshot_id)) is not None:
                return snapshot
        return None
