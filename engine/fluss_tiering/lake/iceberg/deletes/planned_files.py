"""The driver's side: the live data files of a snapshot, each with its live delete files."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from py4j.java_gateway import JavaObject, JVMView

from fluss_tiering.lake.iceberg.java import iceberg_class, lake_errors
from fluss_tiering.lake.protocol import FileContent, FileMetrics, LakeFile, LiveDataFile, VectorPlace

_LEVEL: Final = 1
"""The level of the compression, the fastest."""
_EQUALITY: Final = "equality-deletes"
_TOTAL_DELETE_FILES: Final = "total-delete-files"
"""The count in a snapshot's summary (`SnapshotSummary`). A snapshot may lack it."""


def live_data_files(
    jvm: JVMView, table: JavaObject, snapshot_id: int | None, where: JavaObject | None = None
) -> Iterator[LiveDataFile]:
    """Yield the data files of a snapshot. It takes some calls into the JVM for each file, and none for a row.

    Args:
        jvm: The JVM of the Spark session.
        table: Iceberg's table object.
        snapshot_id: The id of the snapshot; None for a table without snapshots.
        where: Iceberg's expression for the rows of some partitions; None for all of them.

    Raises:
        FlussTieringError: STORAGE if the lake cannot be read.
    """
    if snapshot_id is None:
        return
    with lake_errors(f"list the data files of the lake table {table.name()}"):
        described = _Descriptions(jvm, table, snapshot_id)
        scan = table.newScan().useSnapshot(snapshot_id)
        tasks = (scan if where is None else scan.filter(where)).planFiles()
        try:
            # Each step of an iterator would be two calls.
            listed = iceberg_class(jvm, "relocated.com.google.common.collect.Lists").newArrayList(tasks)
        finally:
            tasks.close()
        for number in range(listed.size()):
            yield described.data_file(listed.get(number))


class _Descriptions:
    """Describes files with few calls into the JVM. A delete file that many data files have is described once."""

    def __init__(self, jvm: JVMView, table: JavaObject, snapshot_id: int) -> None:
        self._parser = iceberg_class(jvm, "ContentFileParser")
        self._util = iceberg_class(jvm, "util.ContentFileUtil")
        self._has_deletes = table.snapshot(snapshot_id).summary().get(_TOTAL_DELETE_FILES) != "0"
        self._specs = table.specs()
        self._spec = table.spec() if self._specs.size() == 1 else None
        self._deletes: dict[str, LakeFile | None] = {}
        self._fields: dict[int, list[str]] = {}

    def data_file(self, task: JavaObject) -> LiveDataFile:
        """Return the data file of a scan task."""
        described = json.loads(self._json(task.file()))
        deletes = self._delete_files(task) if self._has_deletes else []
        by_position = tuple(each for each in deletes if each is not None)
        return LiveDataFile(
            described["file-path"],
            _partition(described, self._partition_fields(described["spec-id"])),
            described["record-count"],
            by_position,
            len(by_position) < len(deletes),
            described["spec-id"],
            described["file-format"].upper(),
        )

    def _partition_fields(self, spec_id: int) -> list[str]:
        """Return the ids of the partition fields of a spec, in their order."""
        if spec_id not in self._fields:
            self._fields[spec_id] = [str(field.fieldId()) for field in self._specs.get(spec_id).fields()]
        return self._fields[spec_id]

    def _delete_files(self, task: JavaObject) -> list[LakeFile | None]:
        """Return the live delete files of a scan task; None for each one with equality deletes."""
        listed = task.deletes()
        # To iterate over a Java list costs an exception of the JVM, which takes ten times as long as all calls here.
        return [self._delete_file(listed.get(number)) for number in range(listed.size())]

    def _delete_file(self, file: JavaObject) -> LakeFile | None:
        location = str(file.location())
        if location in self._deletes:
            return self._deletes[location]
        text = self._json(file)
        described: Mapping[str, Any] = json.loads(text)
        if described["content"] == _EQUALITY:
            self._deletes[location] = None
            return None
        referenced = described.get("referenced-data-file") or self._util.referencedDataFileLocation(file)
        delete_file = _delete_file(text, described, referenced)
        # A Puffin file may have the vectors of several data files, of which each is another delete file.
        if delete_file.vector is None:
            self._deletes[location] = delete_file
        return delete_file

    def _json(self, file: JavaObject) -> str:
        spec = self._specs.get(file.specId()) if self._spec is None else self._spec
        return str(self._parser.toJson(file, spec))


def _delete_file(text: str, described: Mapping[str, Any], referenced: str | None) -> LakeFile:
    """Return a live delete file. What Iceberg says of it is kept, since a commit removes it by this description."""
    vector = None
    if described["file-format"].upper() == "PUFFIN":
        vector = VectorPlace(described["content-offset"], described["content-size-in-bytes"])
    return LakeFile(
        FileContent.POSITION_DELETES,
        0,
        described["file-path"],
        described["file-size-in-bytes"],
        FileMetrics(described["record-count"]),
        packed=zlib.compress(text.encode(), _LEVEL),
        referenced=() if referenced is None else (str(referenced),),
        vector=vector,
    )


def _partition(described: Mapping[str, Any], fields: Sequence[str]) -> tuple[Any, ...]:
    """Return the partition values of a file. Older versions of Iceberg name their fields, and leave out nulls."""
    partition = described.get("partition", ())
    return tuple(map(partition.get, fields) if isinstance(partition, dict) else partition)
