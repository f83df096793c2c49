"""The manifests of a lake table's current snapshot, and the files that they list.

The files are read here and not by Spark's metadata tables, since Spark opens no table with a TIME column.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final

from py4j.java_gateway import JavaObject, JVMView

from fluss_tiering.lake.iceberg.java import lake_errors
from fluss_tiering.lake.iceberg.metadata.unreadable import count_files
from fluss_tiering.lake.iceberg.repair.check import ListedFile
from fluss_tiering.lake.protocol import FileContent

_CONTENTS: Final = (FileContent.DATA, FileContent.POSITION_DELETES, FileContent.EQUALITY_DELETES)
"""The contents of files by their numbers in Iceberg's spec."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A live file in a manifest.

    Attributes:
        file: The file with its bounds.
        snapshot_id: The snapshot that added the file.
        sequence_number: The data sequence number, by which deletes apply.
        file_sequence_number: The sequence number of the snapshot that added the file.
    """

    file: ListedFile
    snapshot_id: int
    sequence_number: int
    file_sequence_number: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest with its live files.

    Attributes:
        java: Iceberg's manifest object.
        entries: The live files.
    """

    java: JavaObject
    entries: tuple[Entry, ...]


def live_manifests(jvm: JVMView, table: JavaObject) -> list[Manifest]:
    """Return the manifests of a table's current snapshot; none if there is no snapshot.

    Raises:
        FlussTieringError: STORAGE if the lake cannot be read.
    """
    with lake_errors(f"read the manifests of the lake table {table.name()}"):
        snapshot = table.currentSnapshot()
        if snapshot is None:
            return []
        io = table.io()
        found = []
        for each in snapshot.allManifests(io):
            # pyiceberg's compiled reader reads memory behind a manifest that is cut off. Iceberg's own one raises.
            count_files(jvm, table, each)
            found.append(Manifest(each, _entries(each, _reader(io))))
        return found


def _reader(io: JavaObject) -> Callable[[str], bytes]:
    def read(location: str) -> bytes:
        stream = io.newInputFile(location).newStream()
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    return read


def _entries(manifest: JavaObject, read: Callable[[str], bytes]) -> tuple[Entry, ...]:
    from pyiceberg.manifest import ManifestContent, ManifestFile  # noqa: PLC0415 - takes seconds, and only repairs need it

    content = ManifestContent.DELETES if str(manifest.content()) == "DELETES" else ManifestContent.DATA
    described = ManifestFile.from_args(
        manifest_path=str(manifest.path()),
        manifest_length=int(manifest.length()),
        partition_spec_id=int(manifest.partitionSpecId()),
        content=content,
        sequence_number=int(manifest.sequenceNumber()),
        min_sequence_number=int(manifest.minSequenceNumber()),
        added_snapshot_id=int(manifest.snapshotId()),
    )
    return tuple(map(_entry, described.fetch_manifest_entry(_Files(read))))


def _entry(entry: Any) -> Entry:  # noqa: ANN401 - pyiceberg has no types here
    file = entry.data_file
    return Entry(
        ListedFile(
            file.file_path,
            dict(file.lower_bounds or {}),
            dict(file.upper_bounds or {}),
            _CONTENTS[int(file.content)],
            str(file.file_format.value).upper(),
            file.file_size_in_bytes,
            file.record_count,
        ),
        entry.snapshot_id,
        entry.sequence_number,
        entry.file_sequence_number,
    )


class _Files:
    """Reads through the JVM what pyiceberg asks for: the catalog's own access, with its own credentials."""

    def __init__(self, read: Callable[[str], bytes]) -> None:
        self._read = read

    def new_input(self, location: str) -> _File:
        return _File(location, self._read)


class _File:
    def __init__(self, location: str, read: Callable[[str], bytes]) -> None:
        self.location = location
        self._read = read

    def open(self, seekable: bool = True) -> BytesIO:
        return BytesIO(self._read(self.location))
