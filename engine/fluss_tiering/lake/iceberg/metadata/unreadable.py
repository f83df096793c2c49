"""Names the metadata file of a lake table that is missing or damaged, after a call to Iceberg has failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fluss_tiering.lake.iceberg.java import JAVA_ERRORS, tells_usual_cause
from fluss_tiering.lake.iceberg.library import JavaTable, ask, damaged_file
from fluss_tiering.lake.iceberg.summary import from_summary
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

OPEN_CATALOG: Final = "open the lake catalog"
"""What failed, in the error of a catalog that cannot be opened."""
_AVRO: Final = ".avro"


def may_tell_of_metadata(failure: Exception) -> bool:
    """Return whether a failure may come from a file that cannot be read. Most other errors say their cause."""
    if not isinstance(failure, FlussTieringError):
        return isinstance(failure, JAVA_ERRORS)
    if OPEN_CATALOG in failure.message:
        # No file was read, and to open the catalog again would take as long: half a minute of a REST catalog's retries.
        return False
    return failure.code in (ErrorCode.STORAGE, ErrorCode.UNKNOWN) and not tells_usual_cause(failure.message)


def unreadable_metadata(
    table: JavaTable, failure: Exception, call_of: Callable[[str, int], str]
) -> FlussTieringError | None:
    """Return the error of a metadata file that cannot be read, if that may be why a call has failed.

    The metadata of all snapshots is read only if the failure names a manifest or a manifest list. Otherwise only that
    of the current one is, since there may be thousands.

    Args:
        table: The table.
        failure: The error of the call.
        call_of: Returns the call of a procedure of Iceberg that takes a snapshot of the table.

    Returns:
        None if all files can be read, or if their store fails.
    """
    try:
        found = ask(table, "damage", _AVRO in str(failure))
    except JAVA_ERRORS:  # the JVM has ended, or the store fails
        return None
    if found is None:
        return None
    error = damaged_file(found["damage"])
    if not found["undone"] or "whole" not in found:
        return error
    # Rounds go on from the newest snapshot that is whole, unless a snapshot of a round is undone.
    call = call_of("rollback_to_snapshot", found["whole"])
    if all(from_summary(summary) is None for _, summary in found["undone"]):
        way_back = f"or go back to the newest snapshot that can be read, from which rounds go on: {call}"
    else:
        newest, _ = found["undone"][0]
        way_back = (
            f"meanwhile engines can read an older snapshot after {call}. It lacks rows of the last rounds, so that "
            "rounds refuse the table until the file is back and the newest snapshot is the current one again: "
            f"{call_of('set_current_snapshot', newest)}"
        )
    return FlussTieringError(error.code, f"{error.message}; {way_back}")
