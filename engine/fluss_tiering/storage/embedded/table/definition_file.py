"""A table's definition as the JSON file in its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import Column, DataType, TableDescriptor, TableInfo, TablePath
from fluss_tiering.storage.embedded.layout import TABLE_FILE
from fluss_tiering.storage.files import corrupt, read_json, write_json

_FORMAT_VERSION: Final = 1
_REMEDY: Final = "restore it from a backup, or move the table's folder away and load the table again"


def write_table_file(folder: Path, info: TableInfo) -> None:
    """Write the definition durably, without what the server adds to a `TableInfo`."""
    descriptor = info.descriptor
    write_json(
        folder / TABLE_FILE,
        {
            "format_version": _FORMAT_VERSION,
            "table_id": info.table_id,
            "database": info.path.database,
            "table": info.path.table,
            "schema_id": info.schema_id,
            "created_time": info.created_time,
            "columns": [
                {"name": column.name, "type": str(column.data_type), "comment": column.comment}
                for column in descriptor.columns
            ],
            "primary_key": list(descriptor.primary_key),
            "bucket_keys": list(descriptor.bucket_keys),
            "partition_keys": list(descriptor.partition_keys),
            "num_buckets": descriptor.num_buckets,
            "properties": dict(descriptor.properties),
            "comment": descriptor.comment,
        },
    )


def read_table_file(folder: Path) -> TableInfo:
    """Return the definition in a table's folder.

    Raises:
        FlussTieringError: CORRUPT_DATA if the file is missing, torn or no definition.
    """
    path = folder / TABLE_FILE
    content = read_json(path, _REMEDY)
    if content.get("format_version") != _FORMAT_VERSION:
        found = f"has the format version {content.get('format_version')!r}"
        raise corrupt(path, found, f"version {_FORMAT_VERSION}", "use the release that wrote this data folder")
    try:
        return TableInfo(
            table_id=int(content["table_id"]),
            path=TablePath(content["database"], content["table"]),
            schema_id=int(content["schema_id"]),
            descriptor=_descriptor(content),
            created_time=int(content["created_time"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, FlussTieringError) as error:
        raise corrupt(path, f"is no table's definition ({error!r})", "one that this storage wrote", _REMEDY) from error


def _descriptor(content: dict[str, Any]) -> TableDescriptor:
    return TableDescriptor(
        columns=tuple(
            Column(column["name"], DataType.parse(column["type"]), column["comment"]) for column in content["columns"]
        ),
        primary_key=tuple(content["primary_key"]),
        bucket_keys=tuple(content["bucket_keys"]),
        num_buckets=int(content["num_buckets"]),
        properties=dict(content["properties"]),
        comment=content["comment"],
        # The file of a table that is older than the support for partitions does not have this entry.
        partition_keys=tuple(content.get("partition_keys", ())),
    )
