"""The driver's side: the live data files of a snapshot, each with its live delete files."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from py4j.java_gateway import JavaObject, JVMView

from fluss_tiering.lake.iceberg.java import elements, iceberg_class, lake_errors
from fluss_tiering.lake.iceberg.metadata.jvm_functions import functions_of
from fluss_tiering.lake.protocol import FileContent, FileMetrics, LakeFile, LiveDataFile, VectorPlace

_AT_ONCE: Final = 1000
"""So many files are described at once. Each takes about a kilobyte."""
_NULL: Final = "null"
_LEVEL: Final = 1
"""The level of the compression, the fastest."""
_EQUALITY: Final = "equality-deletes"
_TOTAL_DELETE_FILES: Final = "total-delete-files"
"""The count in a snapshot's summary (`SnapshotSummary`). A snapshot may lack it."""


def live_data_files(
    jvm: JVMView, table: JavaObject, snapshot_id: int | None, where: JavaObject | None = None
) -> Iterator[LiveDataFile]:
    """Yield the data files of a snapshot. It takes some calls into the JVM for a thousand files.

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
        scan = table.newScan().useSnapshot(snapshot_id)
        tasks = (scan if where is None else scan.filter(where)).planFiles()
        try:
            # Each step of an iterator would be two calls.
            listed = iceberg_class(jvm, "relocated.com.google.common.collect.Lists").newArrayList(tasks)
        finally:
            tasks.close()
        size = int(listed.size())
        if not size:
            return
        has_deletes = table.snapshot(snapshot_id).summary().get(_TOTAL_DELETE_FILES) != "0"
        described = _Descriptions(jvm, table.specs())
        for start in range(0, size, _AT_ONCE):
            part = jvm.java.util.ArrayList(listed.subList(start, min(start + _AT_ONCE, size)))
            yield from described.data_files(part, has_deletes=has_deletes)


class _Descriptions:
    """Describes files, with some calls into the JVM for each list of them.

    Args:
        jvm: The JVM.
        specs: The partition specs of the table by their ids.
    """

    def __init__(self, jvm: JVMView, specs: JavaObject) -> None:
        self._jvm = jvm
        self._specs = specs
        self._functions = functions = functions_of(jvm)
        to_json = functions.static("ContentFileParser", "toJson", "java.lang.String", "ContentFile", "PartitionSpec")
        self._json = functions.looked_up(to_json, functions.method("ContentFile", "specId", "int"), specs)
        self._referenced = functions.static(
            "util.ContentFileUtil", "referencedDataFileLocation", "java.lang.String", "DeleteFile"
        )
        self._file = functions.method("ContentScanTask", "file", "ContentFile")
        self._deletes_of = functions.chain(
            functions.method("FileScanTask", "deletes", "java.util.List"),
            functions.constructor("java.util.ArrayList", "java.util.Collection"),
        )
        self._deletes: dict[str, LakeFile | None] = {}
        self._fields: dict[int, list[str]] = {}

    def data_files(self, tasks: JavaObject, *, has_deletes: bool) -> Iterator[LiveDataFile]:
        """Yield the data files of scan tasks."""
        texts = self._functions.texts(tasks, self._functions.chain(self._file, self._json))
        deletes_of = self._delete_files(tasks) if has_deletes else [[]] * len(texts)
        for text, deletes in zip(texts, deletes_of, strict=True):
            described = json.loads(text)
            by_position = tuple(each for each in deletes if each is not None)
            yield LiveDataFile(
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
            self._fields[spec_id] = [str(field.fieldId()) for field in elements(self._specs.get(spec_id).fields())]
        return self._fields[spec_id]

    def _delete_files(self, tasks: JavaObject) -> list[list[LakeFile | None]]:
        """Return the live delete files of each scan task; None for each one with equality deletes."""
        numbers = self._jvm.java.util.LinkedHashMap()
        self._functions.replace_all(tasks, self._deletes_of)
        self._functions.replace_all_in_each(tasks, self._functions.numbering(numbers))
        distinct = self._jvm.java.util.ArrayList(numbers.keySet())
        texts = self._functions.texts(distinct, self._json)
        # The descriptions of older files do not say it, but their bounds do.
        referenced = self._functions.texts(distinct, self._referenced)
        found = list(map(self._delete_file, texts, referenced))
        return [[found[number] for number in of_task] for of_task in json.loads(str(tasks.toString()))]

    def _delete_file(self, text: str, referenced: str) -> LakeFile | None:
        described: Mapping[str, Any] = json.loads(text)
        location = described["file-path"]
        if location in self._deletes:
            return self._deletes[location]
        if described["content"] == _EQUALITY:
            self._deletes[location] = None
            return None
        delete_file = _delete_file(text, described, None if referenced == _NULL else referenced)
        # A Puffin file may have the vectors of several data files, of which each is another delete file.
        if delete_file.vector is None:
            self._deletes[location] = delete_file
        return delete_file


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
        referenced=() if referenced is None else (referenced,),
        vector=vector,
    )


def _partition(described: Mapping[str, Any], fields: Sequence[str]) -> tuple[Any, ...]:
    """Return the partition values of a file. Older versions of Iceberg name their fields, and leave out nulls."""
    partition = described.get("partition", ())
    return tuple(map(partition.get, fields) if isinstance(partition, dict) else partition)
