"""Names the metadata file of a lake table that is missing or damaged, after a call to Iceberg has failed.

Iceberg's own errors say what its reader stumbled over, often without the file. So the files are read once more here,
each by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Final

from py4j.java_gateway import JavaObject, JVMView
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from fluss_tiering.lake.damaged_parquet import FORBIDDEN, MISSING, cause_of, unreadable_file
from fluss_tiering.lake.iceberg.java import (
    JAVA_ERRORS,
    causes,
    elements,
    iceberg_class,
    is_denied,
    is_iceberg,
    root_text,
    tells_usual_cause,
)
from fluss_tiering.lake.iceberg.metadata.history import ancestors
from fluss_tiering.lake.iceberg.summary import from_summary
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

_AVRO: Final = ".avro"
_END: Final = "it ends too early"
_METADATA: Final = ("metadata file", "JSON")
_LIST: Final = ("manifest list", "Avro")
_MANIFEST: Final = ("manifest", "Avro")
_Kind = tuple[str, str]
_Unreadable = tuple[str, _Kind, Py4JError | PySparkException]
"""The location of a file, what it is, and why it cannot be read."""


def may_tell_of_metadata(failure: Exception) -> bool:
    """Return whether a failure may come from a file that cannot be read. Most other errors say their cause."""
    if not isinstance(failure, FlussTieringError):
        return isinstance(failure, JAVA_ERRORS)
    return failure.code in (ErrorCode.STORAGE, ErrorCode.UNKNOWN) and not tells_usual_cause(failure.message)


def unreadable_metadata(
    jvm: JVMView, table: JavaObject, failure: Exception, call_of: Callable[[str, int], str]
) -> FlussTieringError | None:
    """Return the error of a metadata file that cannot be read, if that may be why a call has failed.

    The metadata of all snapshots is read only if the failure names a manifest or a manifest list. Otherwise only that
    of the current one is, since there may be thousands.

    Args:
        jvm: The JVM.
        table: Iceberg's table object.
        failure: The error of the call.
        call_of: Returns the call of a procedure of Iceberg that takes a snapshot of the table.

    Returns:
        None if all files can be read, or if their store fails.
    """
    try:
        found = _first_unreadable(jvm, table, _AVRO in str(failure))
        error = None if found is None else _error(jvm, table.io(), *found)
        if error is None or (way_back := _way_back(jvm, table, call_of)) is None:
            return error
        return FlussTieringError(error.code, f"{error.message}; {way_back}")
    except JAVA_ERRORS:  # the JVM has ended, or the store fails
        return None


def check_current_snapshot(jvm: JVMView, table: JavaObject) -> None:
    """Read the metadata of the current snapshot to its end, anew and not from what Iceberg remembers.

    Raises:
        FlussTieringError: CORRUPT_DATA if a file of it is missing or damaged.
        Py4JError: If the store fails.
        PySparkException: If the store fails.
    """
    found = _first_unreadable(jvm, table, everything=False)
    if found is not None:
        raise _error(jvm, table.io(), *found) or found[-1]


def unreadable_in(jvm: JVMView, table: JavaObject, snapshots: Iterable[JavaObject]) -> str | None:
    """Return which metadata file of some snapshots cannot be read, and why; None if all can, or if the store fails."""
    try:
        found = _first_unreadable_of(jvm, table, snapshots)
        if found is None:
            return None
        location, (kind, _), error = found
        what = _what(jvm, table.io(), location, error)
    except JAVA_ERRORS:  # the JVM has ended, or the store fails
        return None
    return None if what is None else cause_of(location, what, kind)


def unreadable_metadata_file(jvm: JVMView, io: JavaObject, location: str) -> FlussTieringError | None:
    """Return the error of a metadata file of a table; None if it can be read, or if its store fails."""
    try:
        iceberg_class(jvm, "TableMetadataParser").read(io, location)
    except JAVA_ERRORS as error:
        with suppress(*JAVA_ERRORS):
            return _error(jvm, io, location, _METADATA, error)
    return None


def metadata_file_error(location: str, what: str) -> FlussTieringError:
    """Return the error of a metadata file that cannot be read.

    Args:
        location: The location of the file.
        what: What is wrong with the file: `MISSING`, `FORBIDDEN`, or "is damaged: WHY".
    """
    return unreadable_file(location, what, *_METADATA)


def count_files(jvm: JVMView, table: JavaObject, manifest: JavaObject) -> int:
    """Return the number of live files in a manifest, which is read to its end. Errors are those of the JVM."""
    files = iceberg_class(jvm, "ManifestFiles")
    read = files.readDeleteManifest if str(manifest.content()) == "DELETES" else files.read
    reader = read(manifest, table.io(), table.specs())
    try:
        return int(iceberg_class(jvm, "relocated.com.google.common.collect.Iterables").size(reader))
    finally:
        reader.close()


def _way_back(jvm: JVMView, table: JavaObject, call_of: Callable[[str, int], str]) -> str | None:
    """Return how engines can read the newest snapshot again whose metadata is whole; None if the current one's is.

    Rounds go on from there, unless a snapshot of a round is undone. Its rows would be missing.
    """
    undone: list[JavaObject] = []
    for snapshot in ancestors(table):
        if _first_unreadable_of(jvm, table, [snapshot]) is None:
            break
        undone.append(snapshot)
    else:
        return None
    if not undone:
        return None
    call = call_of("rollback_to_snapshot", int(snapshot.snapshotId()))
    if all(from_summary(each.summary()) is None for each in undone):
        return f"or go back to the newest snapshot that can be read, from which rounds go on: {call}"
    return (
        f"meanwhile engines can read an older snapshot after {call}. It lacks rows of the last rounds, so that rounds "
        "refuse the table until the file is back and the newest snapshot is the current one again: "
        f"{call_of('set_current_snapshot', int(undone[0].snapshotId()))}"
    )


def _first_unreadable(jvm: JVMView, table: JavaObject, everything: bool) -> _Unreadable | None:
    location = str(table.operations().current().metadataFileLocation())
    try:
        # Iceberg's objects remember what they have read before.
        metadata = iceberg_class(jvm, "TableMetadataParser").read(table.io(), location)
    except JAVA_ERRORS as error:
        return location, _METADATA, error
    return _first_unreadable_of(jvm, table, _snapshots(metadata, everything))


def _first_unreadable_of(jvm: JVMView, table: JavaObject, snapshots: Iterable[JavaObject]) -> _Unreadable | None:
    seen: set[str] = set()
    for snapshot in snapshots:
        try:
            manifests = elements(snapshot.allManifests(table.io()))
        except JAVA_ERRORS as error:
            return str(snapshot.manifestListLocation()), _LIST, error
        for manifest in manifests:
            location = str(manifest.path())
            if location in seen:
                continue
            seen.add(location)
            try:
                count_files(jvm, table, manifest)
            except JAVA_ERRORS as error:
                return location, _MANIFEST, error
    return None


def _snapshots(metadata: JavaObject, everything: bool) -> Iterator[JavaObject]:
    """Yield the current snapshot, and then the others if everything is looked at."""
    current = metadata.currentSnapshot()
    if current is not None:
        yield current
    if everything:
        yield from elements(metadata.snapshots())


def _error(
    jvm: JVMView, io: JavaObject, location: str, kind: _Kind, error: Py4JError | PySparkException
) -> FlussTieringError | None:
    """Return the error of a file that Iceberg cannot read; None if its store does not give its bytes."""
    what = _what(jvm, io, location, error)
    return None if what is None else unreadable_file(location, what, *kind)


def _what(jvm: JVMView, io: JavaObject, location: str, error: Py4JError | PySparkException) -> str | None:
    file = io.newInputFile(location)
    try:
        # S3 refuses a range of an empty object instead of ending it.
        if int(file.getLength()) == 0:
            return f"is damaged: {_END}"
        stream = file.newStream()
        try:
            stream.transferTo(jvm.java.io.OutputStream.nullOutputStream())
        finally:
            stream.close()
    except Py4JJavaError as failed:
        if is_denied(failed):
            return FORBIDDEN
        names = {str(each.getClass().getSimpleName()) for each in causes(failed)}
        if is_iceberg(failed, "NotFoundException") or "FileNotFoundException" in names:
            return MISSING
        # Hadoop compares the bytes of a local file with its checksums.
        return f"is damaged: {root_text(failed)}" if "ChecksumException" in names else None
    why = root_text(error)
    return f"is damaged: {_END if why == 'EOFException' else why}"
