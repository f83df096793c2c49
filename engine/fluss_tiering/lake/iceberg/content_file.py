"""Describes files that executors wrote in the JSON of Iceberg's `ContentFileParser`."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from fluss_tiering.lake.files import FileContent, FileMetrics, LakeFile

_NO_METRICS: Final = FileMetrics(0)
_LEVEL: Final = 1
"""The level of the compression, the fastest."""


class ContentFiles:
    """Describes the files of one table.

    Args:
        spec_id: The id of the partition spec with which files are written.
        specs: The partition specs, in Iceberg's JSON.
        by_bucket: Whether the last field of the spec is the bucket's.
    """

    def __init__(
        self,
        identifier_ids: Sequence[int],
        spec_id: int,
        specs: Sequence[Mapping[str, Any]],
        *,
        by_bucket: bool = True,
    ) -> None:
        self._identifier_ids = sorted(identifier_ids)
        self.spec_id = spec_id
        self._by_bucket = by_bucket
        self._fields = {spec["spec-id"]: [str(field["field-id"]) for field in spec["fields"]] for spec in specs}

    def packed(self, file: LakeFile) -> LakeFile:
        """Return the file with its compressed description instead of its metrics."""
        # Whoever reads deletes again compares their number.
        deletes = file.content is FileContent.POSITION_DELETES
        metrics = FileMetrics(file.metrics.record_count) if deletes else _NO_METRICS
        return replace(file, metrics=metrics, packed=zlib.compress(self.to_json(file).encode(), _LEVEL))

    def to_json(self, file: LakeFile) -> str:
        """Return the description of a file in Iceberg's JSON."""
        if file.packed:
            return zlib.decompress(file.packed).decode()
        if file.row_partition is not None:
            partition = file.row_partition
        else:
            partition = (*file.partition_values, file.bucket) if self._by_bucket else file.partition_values
        spec_id = self.spec_id if file.spec_id is None else file.spec_id
        content: dict[str, Any] = {
            "spec-id": spec_id,
            "content": file.content.name,
            "file-path": file.location,
            "file-format": "PARQUET" if file.vector is None else "PUFFIN",
            "partition": dict(zip(self._fields[spec_id], partition, strict=True)),
            "file-size-in-bytes": file.size_bytes,
            **_metrics(file.metrics),
        }
        if file.content is FileContent.EQUALITY_DELETES:
            content["equality-ids"] = self._identifier_ids
        if len(file.referenced) == 1:
            # Of several data files, the bounds of the column with their locations say which ones are meant.
            (content["referenced-data-file"],) = file.referenced
        if file.vector is not None:
            content["content-offset"] = file.vector.offset
            content["content-size-in-bytes"] = file.vector.size_bytes
        return json.dumps(content)


def _metrics(metrics: FileMetrics) -> dict[str, Any]:
    """Return the part of a file's description that is about its metrics."""
    return {
        "record-count": metrics.record_count,
        "column-sizes": _by_field(metrics.column_sizes),
        "value-counts": _by_field(metrics.value_counts),
        "null-value-counts": _by_field(metrics.null_value_counts),
        "nan-value-counts": _by_field(metrics.nan_value_counts),
        "lower-bounds": _by_field(metrics.lower_bounds),
        "upper-bounds": _by_field(metrics.upper_bounds),
        "split-offsets": list(metrics.split_offsets),
    }


def _by_field(values: Mapping[int, int] | Mapping[int, bytes]) -> dict[str, list[Any]]:
    """Return a map in Iceberg's JSON: a list of keys and a list of values, with bytes in hexadecimal."""
    return {
        "keys": list(values),
        "values": [value.hex().upper() if isinstance(value, bytes) else value for value in values.values()],
    }
