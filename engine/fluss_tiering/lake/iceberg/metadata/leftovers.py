"""Files that no snapshot of a lake table refers to, such as those of a commit that did not land."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from py4j.protocol import Py4JError

from fluss_tiering.lake.iceberg.java import java_error_text
from fluss_tiering.lake.iceberg.library import JavaTable, ask

logger = logging.getLogger(__name__)


def delete_locations(table: JavaTable, locations: Iterable[str]) -> list[str]:
    """Delete files that no snapshot refers to; log and return those that could not be deleted."""
    wanted = list(locations)
    if not wanted:
        return []
    try:
        kept = ask(table, "deleteFiles", wanted)
    except Py4JError as error:
        kept = [(location, java_error_text(error)) for location in wanted]
    for location, why in kept:
        logger.warning("could not delete %s: %s", location, why)
    return [location for location, _ in kept]
