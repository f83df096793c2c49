"""Tables that are put back from a backup, and are older than their lake then."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from embedded_tables import LOG_COLUMNS, PATH, TurnedClock, log_table, opened
from refusals import refused

from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.table import TableBucket, TableDescriptor, TableInfo, WriteKind
from fluss_tiering.storage.embedded.storage import EmbeddedStorage

PARTITIONED = TableDescriptor(LOG_COLUMNS, partition_keys=("name",))


def write(storage: EmbeddedStorage, table: TableInfo, ids: range) -> None:
    rows = {"id": list(ids), "name": ["a"] * len(ids)}
    kind = WriteKind.UPSERT if table.has_primary_key else WriteKind.APPEND
    storage.write(table.path, kind, pa.Table.from_pydict(rows, schema=arrow_schema(LOG_COLUMNS)))


def offsets_of(storage: EmbeddedStorage, table: TableInfo) -> dict[TableBucket, int]:
    return {info.bucket: info.log_end_offset for info in storage.buckets(table.path)}


@pytest.mark.parametrize(
    "descriptor",
    [log_table(), TableDescriptor(LOG_COLUMNS, primary_key=("id",), bucket_keys=("id",)), PARTITIONED],
    ids=["log", "keyed", "partitioned"],
)
def test_a_lake_that_is_newer_than_its_table_is_refused_also_once_the_log_has_grown(
    tmp_path: Path, descriptor: TableDescriptor
) -> None:
    folder, backup, clock = tmp_path / "data", tmp_path / "backup", TurnedClock()
    with opened(folder, clock=clock) as storage:
        table = storage.create_table(PATH, descriptor)
        write(storage, table, range(5))
    shutil.copytree(folder, backup)
    with opened(folder, clock=clock) as storage:
        write(storage, table, range(10, 15))
        file = storage.write_lake_offsets(table.table_id, offsets_of(storage, table))
        write(storage, table, range(20, 25))
        assert storage.has_lake_offsets(table.table_id, file)
    with opened(folder, clock=clock) as storage:
        assert storage.has_lake_offsets(table.table_id, file)
        write(storage, table, range(30, 35))
        assert storage.has_lake_offsets(table.table_id, file)

    # What the backup lacks stays, as with `cp -a backup/. folder/`.
    shutil.copytree(backup, folder, dirs_exist_ok=True)
    clock.now += 1
    told = (str(PATH), "is newer than the table", "older backup", "restore the lake of the same time")
    with opened(folder, clock=clock) as storage:
        with refused(ErrorCode.LAKE_TABLE_MISMATCH, "ends at offset 5 and ended at 10", *told):
            storage.has_lake_offsets(table.table_id, file)
        for ids in (range(40, 44), range(50, 51), range(60, 70)):
            write(storage, table, ids)
            with refused(ErrorCode.LAKE_TABLE_MISMATCH, *told):
                storage.has_lake_offsets(table.table_id, file)
    with (
        opened(folder, clock=clock) as storage,
        refused(ErrorCode.LAKE_TABLE_MISMATCH, "has other rows before offset 10", *told),
    ):
        storage.has_lake_offsets(table.table_id, file)


def test_files_without_ends_and_ends_of_dropped_partitions_prove_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        table = storage.create_table(PATH, PARTITIONED)
        write(storage, table, range(5))
        file = Path(storage.write_lake_offsets(table.table_id, offsets_of(storage, table)))
        storage.drop_partition(PATH, ["a"])
        write(storage, table, range(2))
    with opened(tmp_path) as storage:
        assert storage.has_lake_offsets(table.table_id, str(file))
        content = json.loads(file.read_text())
        file.write_text(json.dumps({key: content[key] for key in ("version", "table_id", "partition_offsets")}))
        assert storage.has_lake_offsets(table.table_id, str(file))


@pytest.mark.parametrize("content", ["", "[]", '{"log_tails":[[null,0,5]]}', '{"log_tails":[[null,0,"x",1]]}'])
def test_a_damaged_file_is_named(tmp_path: Path, content: str) -> None:
    with opened(tmp_path) as storage:
        table = storage.create_table(PATH, log_table())
        file = Path(storage.write_lake_offsets(table.table_id, {}))
    file.write_text(content)
    with opened(tmp_path) as storage, refused(ErrorCode.CORRUPT_DATA, str(file), "restore it from a backup"):
        storage.has_lake_offsets(table.table_id, str(file))
