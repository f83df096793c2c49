"""Files that no snapshot of a lake table refers to, such as those of a commit that did not land."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError

from fluss_tiering.lake.iceberg.java import is_conflict, java_error_text

logger = logging.getLogger(__name__)


@contextmanager
def deleting_after_conflict(table: JavaObject, written: Collection[str]) -> Iterator[None]:
    """Delete what was written for the commit in the block if it certainly did not land. The error is still raised.

    Args:
        table: Iceberg's table object, as `settled` returns it.
        written: The locations of the files. It may still grow in the block.
    """
    try:
        yield
    except Py4JError as error:
        if is_conflict(error):
            delete_locations(table, written)
        raise


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
