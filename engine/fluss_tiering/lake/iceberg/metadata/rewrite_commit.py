"""The commit of a rewrite, which puts files or manifests in the place of others that have the same rows.

What a rewrite has written is deleted only if its commit surely did not land. A conflict alone does not say so: see
`leftovers`. A mark in the summary of its snapshot does.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection
from typing import Final

from py4j.java_gateway import JavaObject, JVMView
from py4j.protocol import Py4JError

from fluss_tiering.lake.iceberg.java import is_conflict
from fluss_tiering.lake.iceberg.metadata.leftovers import Leftovers, delete_locations, snapshots_since

REWRITE_ID: Final = "fluss-tiering.rewrite-id"
"""The mark of a rewrite in the summary of its snapshots. `COMMIT_ID` would say that they are of a round."""


class RewriteCommit:
    """Commits one rewrite. Errors are those of the JVM.

    Args:
        jvm: The JVM of the Spark session.
        table: Iceberg's table object.
        base: The snapshot from which the rewrite was planned; None for a table without snapshots.
    """

    def __init__(self, jvm: JVMView, table: JavaObject, base: int | None) -> None:
        self._table = table
        self._base = base
        self._id = str(uuid.uuid4())
        self._leftovers = Leftovers(jvm)

    def mark(self, update: JavaObject) -> None:
        """Mark an update of the rewrite, before it is committed."""
        update.set(REWRITE_ID, self._id)
        self._leftovers.take_from(update)

    def run(self, commit: Callable[[], object], written: Collection[str]) -> None:
        """Commit the rewrite. After a conflict, delete what was written, unless the commit has landed.

        Args:
            commit: Commits the updates, which are marked.
            written: The locations of the files that were written for the rewrite. It may still grow during the commit.
        """
        try:
            commit()
        except Py4JError as error:
            # After any other failure the commit may still happen.
            if not is_conflict(error):
                raise
            self._table.refresh()
            if not self._has_landed():
                delete_locations(self._table, [*written, *sorted(self._leftovers.locations)])
                raise
        delete_locations(self._table, self._leftovers.unneeded(self._table, self._base))

    def _has_landed(self) -> bool:
        since = snapshots_since(self._table, self._base)
        return any(snapshot.summary().get(REWRITE_ID) == self._id for snapshot in since)
