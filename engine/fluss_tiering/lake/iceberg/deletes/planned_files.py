"""The driver's side: the live data files of a snapshot, each with its live delete files."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from py4j.java_gateway import JavaObject, JVMView

from fluss_tiering.lake.iceberg.java import iceberg_class, lake_errors
from fluss_tiering.lake.protocol import FileContent, FileMetrics, LakeFile, LiveDataFile, VectorPlace

_LEVEL: Final = 1
"""The level of the compression, the fastest."""
_EQUALITY: Final = "equality-deletes"


def live_data_files(jvm: JVMView, table: JavaObject, snapshot_id: int | None) -> Iterator[LiveDataFile]:
    """Yield the data files of a snapshot. It takes some calls into the JVM for each file, and none for a row.

    Args:
        jvm: The JVM of the Spark session.
        table: Iceberg's table object.
        snapshot_id: The id of the snapshot; None for a table without snapshots.

    Raises:
        FlussTieringError: STORAGE if the lake cannot be read.
    """
    if snapshot_id is None:
        return
    with lake_errors(f"list the data files of the lake table {table.name()}"):
        described = _Descriptions(jvm, table)
        tasks = table.newScan().useSnapshot(snapshot_id).planFiles()
        try:
            found = tasks.iterator()
            while found.hasNext():
                yield described.data_file(found.next())
        finally:
            tasks.close()


class _Descriptions:
    """Describes files with few calls into the JVM. A delete file that many data files have is described once."""

    def __init__(self, jvm: JVMView, table: JavaObject) -> None:
        self._parser = iceberg_class(jvm, "ContentFileParser")
        self._util = iceberg_class(jvm, "util.ContentFileUtil")
        self._specs = table.specs()
        self._spec_of: dict[int, JavaObject] = {}
        self._deletes: dict[tuple[str, int | None], LakeFile | None] = {}

    def data_file(self, task: JavaObject) -> LiveDataFile:
        """Return the data file of a scan task."""
        described = json.loads(self._json(task.file()))
        listed = task.deletes()
        # To iterate over a Java list costs an exception of the JVM, which takes ten times as long as all calls here.
        deletes = [self._delete_file(listed.get(number)) for number in range(listed.size())]
        by_position = tuple(each for each in deletes if each is not None)
        return LiveDataFile(
            described["file-path"],
            _partition(described),
            described["record-count"],
            by_position,
            len(by_position) < len(deletes),
            described["spec-id"],
            described["file-format"].upper(),
        )

    def _delete_file(self, file: JavaObject) -> LakeFile | None:
        """Return a live delete file; None for equality deletes."""
        key = (str(file.location()), file.contentOffset())
        if key not in self._deletes:
            text = self._json(file)
            is_by_key = json.loads(text)["content"] == _EQUALITY
            referenced = None if is_by_key else self._util.referencedDataFileLocation(file)
            self._deletes[key] = None if is_by_key else _delete_file(text, referenced)
        return self._deletes[key]

    def _json(self, file: JavaObject) -> str:
        number = int(file.specId())
        if number not in self._spec_of:
            self._spec_of[number] = self._specs.get(number)
        return str(self._parser.toJson(file, self._spec_of[number]))


def _delete_file(text: str, referenced: str | None) -> LakeFile:
    """Return a live delete file. What Iceberg says of it is kept, since a commit removes it by this description."""
    described: Mapping[str, Any] = json.loads(text)
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


def _partition(described: Mapping[str, Any]) -> tuple[Any, ...]:
    partition = described.get("partition", ())
    return tuple(partition.values() if isinstance(partition, dict) else partition)
