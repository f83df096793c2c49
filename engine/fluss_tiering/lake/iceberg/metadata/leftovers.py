"""The files that Iceberg would delete after a commit, which are kept until it is known whether the commit landed.

A commit can land although a conflict is the answer. The request is done and its answer is lost, and the catalog's
client, or the pool of connections of a JDBC catalog, sends it again. Iceberg then refreshes, finds the commit's own
changes in its way, and deletes the manifests and the manifest list that the newest snapshot is made of.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Final

from py4j.java_gateway import JavaObject, JVMView
from py4j.protocol import Py4JError

from fluss_tiering.lake.iceberg.java import java_error_text

_PRODUCER: Final = "org.apache.iceberg.SnapshotProducer"
_CONSUMER: Final = "deleteFunc"
"""What a `SnapshotProducer` gives files to that are to be deleted. `deleteWith` sets it once, and a transaction has."""

logger = logging.getLogger(__name__)


class Leftovers:
    """Takes the files that the updates of one commit would delete. Errors are those of the JVM.

    Args:
        jvm: The JVM of the Spark session.
    """

    def __init__(self, jvm: JVMView) -> None:
        # A builder is a consumer that keeps what it gets.
        self._taken = jvm.java.util.stream.Stream.builder()
        self._locations: set[str] | None = None

    def take_from(self, update: JavaObject) -> None:
        """Let an update, also one of a transaction, delete nothing by itself."""
        try:
            of_class = update.getClass()
            while str(of_class.getName()) != _PRODUCER:
                of_class = of_class.getSuperclass()
            consumer = of_class.getDeclaredField(_CONSUMER)
            consumer.setAccessible(True)
            consumer.set(update, self._taken)
        except (Py4JError, AttributeError) as error:
            # Another version of Iceberg may be made otherwise. It then deletes by itself, as it does for everybody.
            reason = java_error_text(error) if isinstance(error, Py4JError) else error
            logger.warning("Iceberg deletes the files of a commit that fails before its outcome is known: %s", reason)

    @property
    def locations(self) -> set[str]:
        """What was taken. Nothing can be taken afterwards."""
        if self._locations is None:
            self._locations = {str(each) for each in self._taken.build().toArray()}
        return self._locations

    def unneeded(self, table: JavaObject, base: int | None) -> list[str]:
        """Return what was taken and is in no snapshot after the base, once the commit has landed.

        If the snapshots cannot be read, nothing is returned, and the clean-up of orphan files finds the rest.
        """
        if not self.locations:
            return []
        needed = set()
        try:
            io = table.io()
            for snapshot in snapshots_since(table, base):
                needed.add(str(snapshot.manifestListLocation()))
                needed.update(str(manifest.path()) for manifest in snapshot.allManifests(io))
        except Py4JError as error:
            logger.warning("files that a commit to %s did not need are left: %s", table.name(), java_error_text(error))
            return []
        return sorted(self.locations - needed)


def snapshots_since(table: JavaObject, base: int | None) -> Iterator[JavaObject]:
    """Yield the snapshots after a base, newest first. Errors are those of the JVM."""
    snapshot = table.currentSnapshot()
    while snapshot is not None and snapshot.snapshotId() != base:
        yield snapshot
        parent = snapshot.parentId()
        snapshot = None if parent is None else table.snapshot(parent)


def delete_locations(table: JavaObject, locations: Iterable[str]) -> list[str]:
    """Delete files that no snapshot refers to; log and return those that could not be deleted."""
    kept = []
    for location in locations:
        try:
            table.io().deleteFile(location)
        except Py4JError as error:
            logger.warning("could not delete %s: %s", location, java_error_text(error))
            kept.append(location)
    return kept
