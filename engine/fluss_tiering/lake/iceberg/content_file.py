"""Describes files that executors wrote in Iceberg's JSON, with the metrics by which its readers skip files.

pyiceberg computes counts and bounds from the Parquet footers, with the table's own settings
(`write.metadata.metrics.*`). The JSON is that of Iceberg's `ContentFileParser`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.schema import Schema

from fluss_tiering.lake.protocol import FileContent, LakeFile


class ContentFiles:
    """Describes the files of one table in JSON."""

    def __init__(
        self, schema_json: str, table_properties: Mapping[str, str], spec_id: int, partition_fields: Sequence[int]
    ) -> None:
        """Prepare for a table. `partition_fields` are the ids in the order of the spec; the last is the bucket's."""
        schema = Schema.model_validate_json(schema_json)
        self._statistics = compute_statistics_plan(schema, dict(table_properties))
        self._field_ids = parquet_path_to_id_mapping(schema)
        self._identifier_ids = sorted(schema.identifier_field_ids)
        self._spec_id = spec_id
        self._partition_fields = [str(field) for field in partition_fields]

    def to_json(self, file: LakeFile) -> str:
        """Return the description of a file in Iceberg's JSON."""
        footer = pq.read_metadata(pa.BufferReader(file.footer))
        statistics = data_file_statistics_from_parquet_metadata(footer, self._statistics, self._field_ids)
        metrics = statistics.to_serialized_dict()
        is_delete = file.content is FileContent.EQUALITY_DELETES
        content = {
            "spec-id": self._spec_id,
            "content": "EQUALITY_DELETES" if is_delete else "DATA",
            "file-path": file.location,
            "file-format": "PARQUET",
            "partition": dict(zip(self._partition_fields, (*file.partition_values, file.bucket), strict=True)),
            "file-size-in-bytes": file.size_bytes,
            "record-count": metrics["record_count"],
            "column-sizes": _by_field(metrics["column_sizes"]),
            "value-counts": _by_field(metrics["value_counts"]),
            "null-value-counts": _by_field(metrics["null_value_counts"]),
            "nan-value-counts": _by_field(metrics["nan_value_counts"]),
            "lower-bounds": _by_field(metrics["lower_bounds"]),
            "upper-bounds": _by_field(metrics["upper_bounds"]),
            "split-offsets": metrics["split_offsets"],
        }
        if is_delete:
            content["equality-ids"] = self._identifier_ids
        return json.dumps(content)


def _by_field(values: Mapping[int, int | bytes]) -> dict[str, list[Any]]:
    """Return a map in Iceberg's JSON: a list of keys and a list of values, with bytes in hexadecimal."""
    return {
        "keys": list(values),
        "values": [value.hex().upper() if isinstance(value, bytes) else value for value in values.values()],
    }
