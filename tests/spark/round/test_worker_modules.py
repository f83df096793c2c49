"""A worker of a small round does not load what takes longer than its rows."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from engine_support import VirtualClock
from fluss_tiering.formats.micros import lake_type
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.lake.iceberg.parquet import ParquetFileWriter
from fluss_tiering.model.table import Column, DataType, TableDescriptor, TablePath, WriteKind
from fluss_tiering.spark.round.pieces import PieceWork, StageJob
from fluss_tiering.spark.round.plan import LogPiece, SnapshotPiece
from fluss_tiering.storage.embedded.storage import EmbeddedStorage

PATH = TablePath("db", "t")
COLUMNS = (
    Column("id", DataType.parse("INT NOT NULL")),
    Column("name", DataType.parse("STRING NOT NULL")),
    Column("tags", DataType.parse("ARRAY<STRING>")),
    Column("places", DataType.parse("ROW<x DOUBLE, names MAP<STRING, INT>>")),
)
SYSTEM = (("__bucket", "INT"), ("__offset", "BIGINT"), ("__timestamp", "TIMESTAMP_LTZ(6)"))
PROGRAM = """
import pickle, sys
from pathlib import Path

job = pickle.loads(Path(sys.argv[1]).read_bytes())
rows = [result.rows for result in job(range(len(job.work)))]
sys.stdout.write(f"{rows} {sorted({'pandas', 'pyiceberg'} & set(sys.modules))}")
"""


@pytest.mark.system
@pytest.mark.slow
def test_pieces_of_all_kinds_are_written_without_pandas(tmp_path: Path):
    storage = EmbeddedStorage.open(tmp_path / "data", clock=VirtualClock(1_700_000_000_000))
    table = storage.create_table(PATH, TableDescriptor(COLUMNS, ("id", "name"), ("id",), 1))

    def write(kind: WriteKind, ids: list[int]) -> None:
        rows = [
            {
                "id": number,
                "name": "n",
                "tags": ["a"] * (number % 3) or None,
                "places": {"x": 1.5, "names": {"a": 1}} if number % 2 else None,
            }
            for number in ids
        ]
        storage.write(PATH, kind, pa.Table.from_pylist(rows, schema=arrow_schema(COLUMNS)))

    write(WriteKind.UPSERT, list(range(19, -1, -1)))
    storage.take_kv_snapshots(PATH)
    write(WriteKind.UPSERT, [3, 4])
    write(WriteKind.DELETE, [5])
    (info,) = storage.buckets(PATH)
    assert info.latest_kv_snapshot is not None
    columns = [*COLUMNS, *(Column(name, DataType.parse(kind)) for name, kind in SYSTEM)]
    schema = pa.schema([pa.field(column.name, lake_type(column.data_type)) for column in columns])
    keys = pa.schema([schema.field("id"), schema.field("name")])
    writer = ParquetFileWriter(schema, keys, ("zstd", None), 1 << 29, {}, sorted_by=("id", "name"))
    todo = (
        SnapshotPiece(info.latest_kv_snapshot, deletes=True),
        LogPiece(info.bucket, info.latest_kv_snapshot.log_offset, info.log_end_offset, deletes=True),
    )
    work = [PieceWork(piece, f"file://{tmp_path}/lake/{number}") for number, piece in enumerate(todo)]
    job = tmp_path / "job"
    job.write_bytes(pickle.dumps(StageJob(table, storage.describe(), "", writer, work, 1)))
    storage.close()

    run = subprocess.run([sys.executable, "-c", PROGRAM, str(job)], capture_output=True, text=True, check=False)

    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stdout == "[20, 3] []"
