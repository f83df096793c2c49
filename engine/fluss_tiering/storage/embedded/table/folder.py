"""The folder of a table: it is made in one step with the table's definition, and all files in it are checked."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import Column, DataType, TableDescriptor, TableInfo, TablePath, TableSchema
from fluss_tiering.storage.embedded.layout import (
    LOG_ENDS_FILE,
    METADATA_FOLDER,
    TABLE_FILE,
    bucket_folder_names,
    partition_id_of,
)
from fluss_tiering.storage.embedded.rocksdb import RocksDbMemory
from fluss_tiering.storage.embedded.table.bucket_groups import REMEDY, BucketGroups
from fluss_tiering.storage.embedded.table.table import EmbeddedTable
from fluss_tiering.storage.files import (
    DELETED_SUFFIX,
    TEMPORARY_SUFFIX,
    corrupt,
    delete_folder,
    read_json,
    rename_durably,
    sync_directory,
    write_json,
)

_FORMAT_VERSION: Final = 1
_WITH_SCHEMAS: Final = 2
"""The version of a file with several schemas, which older releases would read wrong."""
_REMEDY: Final = "restore it from a backup, or move the table's folder away and load the table again"


def make_table_folder(folder: Path, info: TableInfo) -> None:
    """Make the folder of a new, empty table. After a crash it is there as a whole or not at all."""
    temporary = folder.with_name(folder.name + TEMPORARY_SUFFIX)
    folder.parent.mkdir(exist_ok=True)
    sync_directory(folder.parent.parent)
    try:
        temporary.mkdir()
        for name in _folder_names(info):
            (temporary / name).mkdir()
        write_table_file(temporary, info)
        rename_durably(temporary, folder)
    except BaseException:
        delete_folder(temporary)
        raise


def open_table(
    info: TableInfo,
    *,
    data_dir: Path,
    folder: Path,
    memory: RocksDbMemory,
    segment_bytes: int,
    allocate_partition_ids: Callable[[int], range],
) -> EmbeddedTable:
    """Open the table in a folder. Its logs are recovered when it is first used, or by `EmbeddedTable.buckets`.

    Raises:
        FlussTieringError: CORRUPT_DATA if a file is missing or foreign. A damaged file is found later.
    """
    _account_for_all(folder, info)
    groups = BucketGroups(
        info,
        data_dir=data_dir,
        folder=folder,
        memory=memory,
        segment_bytes=segment_bytes,
        allocate_partition_ids=allocate_partition_ids,
    )
    return EmbeddedTable(info, folder, groups)


def _account_for_all(folder: Path, info: TableInfo) -> None:
    expected = {TABLE_FILE, *_folder_names(info)}
    optional = set() if info.descriptor.partition_keys else {LOG_ENDS_FILE}
    # Only the names are listed: making paths would take most of the time of a start with many tables.
    found = {name for name in os.listdir(folder) if not name.endswith(TEMPORARY_SUFFIX)}  # noqa: PTH208
    if info.descriptor.partition_keys:
        found = {name for name in found if partition_id_of(name.removesuffix(DELETED_SUFFIX)) is None}
    for name in sorted(expected - found):
        raise corrupt(folder / name, "is missing", "it beside the table's other files", REMEDY)
    for name in sorted(found - expected - optional):
        raise corrupt(folder / name, "is foreign", "only the files of a table here", "move it away")


def _folder_names(info: TableInfo) -> set[str]:
    return {METADATA_FOLDER} if info.descriptor.partition_keys else {METADATA_FOLDER, *bucket_folder_names(info)}


def write_table_file(folder: Path, info: TableInfo) -> None:
    """Write the definition durably, without what the server adds to a `TableInfo`."""
    descriptor = info.descriptor
    write_json(
        folder / TABLE_FILE,
        {
            "format_version": _WITH_SCHEMAS if info.schemas else _FORMAT_VERSION,
            "table_id": info.table_id,
            "database": info.path.database,
            "table": info.path.table,
            "schema_id": info.schema_id,
            "created_time": info.created_time,
            **({"schemas": list(map(_schema_to_json, info.schemas))} if info.schemas else {}),
            "columns": _columns_to_json(descriptor.columns),
            "primary_key": list(descriptor.primary_key),
            "bucket_keys": list(descriptor.bucket_keys),
            "partition_keys": list(descriptor.partition_keys),
            "num_buckets": descriptor.num_buckets,
            "properties": dict(descriptor.properties),
            "comment": descriptor.comment,
        },
    )


def _schema_to_json(schema: TableSchema) -> dict[str, object]:
    ids = list(schema.column_ids)
    return {"schema_id": schema.schema_id, "columns": _columns_to_json(schema.columns), "column_ids": ids}


def _columns_to_json(columns: Sequence[Column]) -> list[dict[str, object]]:
    return [{"name": column.name, "type": str(column.data_type), "comment": column.comment} for column in columns]


def read_table_file(folder: Path) -> TableInfo:
    """Return the definition in a table's folder.

    Raises:
        FlussTieringError: CORRUPT_DATA if the file is missing, torn or no definition.
    """
    path = folder / TABLE_FILE
    content = read_json(path, _REMEDY)
    if content.get("format_version") not in (_FORMAT_VERSION, _WITH_SCHEMAS):
        found = f"has the format version {content.get('format_version')!r}"
        raise corrupt(path, found, f"version {_WITH_SCHEMAS} at most", "use the release that wrote this data folder")
    try:
        return TableInfo(
            table_id=int(content["table_id"]),
            path=TablePath(content["database"], content["table"]),
            schema_id=int(content["schema_id"]),
            descriptor=_descriptor(content),
            created_time=int(content["created_time"]),
            schemas=tuple(
                TableSchema(int(each["schema_id"]), _columns(each), tuple(each["column_ids"]))
                for each in content.get("schemas", ())
            ),
        )
    except (KeyError, TypeError, ValueError, AttributeError, FlussTieringError) as error:
        raise corrupt(path, f"is no table's definition ({error!r})", "one that this storage wrote", _REMEDY) from error


def _descriptor(content: dict[str, Any]) -> TableDescriptor:
    return TableDescriptor(
        columns=_columns(content),
        primary_key=tuple(content["primary_key"]),
        bucket_keys=tuple(content["bucket_keys"]),
        num_buckets=int(content["num_buckets"]),
        properties=dict(content["properties"]),
        comment=content["comment"],
        # The file of a table that is older than the support for partitions does not have this entry.
        partition_keys=tuple(content.get("partition_keys", ())),
    )


def _columns(content: dict[str, Any]) -> tuple[Column, ...]:
    return tuple(
        Column(column["name"], DataType.parse(column["type"]), column["comment"]) for column in content["columns"]
    )
