"""What a worker takes: its peak memory, which depends on settings alone, and the modules that it loads."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from engine_support import VirtualClock
from fluss_tiering.formats.micros import lake_type
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.lake.iceberg.parquet import ParquetFileWriter
from fluss_tiering.model.clock import SystemClock
from fluss_tiering.model.table import Column, DataType, TableDescriptor, TableInfo, TablePath, WriteKind
from fluss_tiering.spark.round.pieces import PieceWork, StageJob
from fluss_tiering.spark.round.plan import LogPiece, PlanLimits, SnapshotPiece, plan_round
from fluss_tiering.storage.embedded.storage import EmbeddedStorage
from fluss_tiering.storage.fluss.storage import FlussStorage

PROGRAM = Path(__file__).with_name("worker_memory.py")
COLUMNS = (
    Column("id", DataType.parse("BIGINT NOT NULL")),
    Column("name", DataType.parse("STRING")),
    Column("payload", DataType.parse("BYTES")),
)
PATH = TablePath("db", "t")
MIB = 1 << 20
Sizes = list[tuple[int, int]]
"""Groups of rows: how many, and the bytes of each one's payload."""


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[EmbeddedStorage]:
    storage = EmbeddedStorage.open(tmp_path / "data", clock=SystemClock())
    yield storage
    storage.close()


def make(storage: EmbeddedStorage | FlussStorage, *, key: bool) -> TableInfo:
    keys = ("id",) if key else ()
    return storage.create_table(PATH, TableDescriptor(COLUMNS, keys, keys, 1))


def write(storage: EmbeddedStorage | FlussStorage, kind: WriteKind, sizes: Sizes, *, at_once: int = 48 * MIB) -> int:
    """Write the groups of rows one after the other, with payloads that cannot be compressed. Return the row count."""
    first = 0
    for count, size in sizes:
        step = max(1, at_once // (size + 16))
        for start in range(first, first + count, step):
            ids = np.arange(start, min(start + step, first + count))
            offsets = np.arange(0, (len(ids) + 1) * size, size or 1, dtype=np.int32)[: len(ids) + 1]
            data = pa.py_buffer(os.urandom(len(ids) * size))
            payload = pa.BinaryArray.from_buffers(
                pa.binary(), len(ids), [None, pa.py_buffer(offsets if size else np.zeros(len(ids) + 1, np.int32)), data]
            )
            columns = [pa.array(ids), pa.array([f"row {number}" for number in ids]), payload]
            storage.write(PATH, kind, pa.table(columns, schema=arrow_schema(COLUMNS)))
        first += count
    return first


def run(storage: EmbeddedStorage | FlussStorage, table: TableInfo, folder: Path, **settings: int) -> dict[str, int]:
    """Do the pieces of a round in a process of its own."""
    buckets = storage.buckets(PATH)
    # Without a lease a cluster may delete a snapshot at any time.
    leased = buckets if isinstance(storage, EmbeddedStorage) else []
    snapshots = {info.bucket: info.latest_kv_snapshot for info in leased if info.latest_kv_snapshot is not None}
    plan = plan_round(
        has_primary_key=table.has_primary_key, tiered={}, buckets=buckets, snapshots=snapshots, limits=PlanLimits()
    )
    columns = [*COLUMNS, *(Column(name, DataType.parse(kind)) for name, kind in _SYSTEM_COLUMNS)]
    schema = pa.schema([pa.field(column.name, lake_type(column.data_type)) for column in columns])
    deletes = pa.schema([schema.field("id")]) if table.has_primary_key else None
    sorted_by = table.descriptor.primary_key
    writer = ParquetFileWriter(schema, deletes, ("zstd", None), 512 * MIB, {}, sorted_by=sorted_by)
    work = [PieceWork(piece, f"file://{folder}/lake/{number}") for number, piece in enumerate(plan.pieces)]
    job = StageJob(table, storage.describe(), "", writer, work, 1, **settings)
    path = folder / "job.pickle"
    path.write_bytes(pickle.dumps(job))
    done = subprocess.run([sys.executable, PROGRAM, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, int] = json.loads(done.stdout)
    return result


_SYSTEM_COLUMNS = (("__bucket", "INT"), ("__offset", "BIGINT"), ("__timestamp", "TIMESTAMP_LTZ(6)"))


# D43
@pytest.mark.long
@pytest.mark.system
@pytest.mark.slow
def test_a_small_buffer_bounds_the_memory_of_a_large_reduction(storage: EmbeddedStorage, tmp_path: Path):
    table = make(storage, key=True)
    rows = write(storage, WriteKind.UPSERT, [(20_000, 10), (250, MIB)])

    small = run(storage, table, tmp_path, buffer_bytes=8 * MIB)

    assert small["rows"] == rows
    assert small["written"] > 250 * MIB
    # The rows alone take 250 MiB, Python and what it has loaded about 150, a row group and its encoding about 150, and
    # the copies of 64 MiB of rows that are sorted about 100.
    assert small["peak"] < 540 * MIB


# D43
@pytest.mark.long
@pytest.mark.parametrize(
    ("sizes", "key"),
    [
        ([(1_000_000, 20), (700, MIB)], True),
        ([(1_000_000, 20), (700, MIB)], False),
        ([(300, 8 * MIB)], True),
        ([(300, 8 * MIB)], False),
    ],
    ids=["small and large changes", "small and large rows", "changes of 8 MB", "rows of 8 MB"],
)
@pytest.mark.system
@pytest.mark.slow
def test_a_log_is_read_with_less_than_a_gigabyte(storage: EmbeddedStorage, tmp_path: Path, sizes: Sizes, key: bool):
    table = make(storage, key=key)
    rows = write(storage, WriteKind.UPSERT if key else WriteKind.APPEND, sizes)

    result = run(storage, table, tmp_path)

    assert result["rows"] == rows
    assert result["peak"] < 1024 * MIB


# D43
@pytest.mark.system
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("sizes", [[(550, MIB)], [(200_000, 20), (550, MIB)], [(60, 8 * MIB)]])
@pytest.mark.system
@pytest.mark.slow
def test_a_kv_snapshot_is_read_with_less_than_a_gigabyte(storage: EmbeddedStorage, tmp_path: Path, sizes: Sizes):
    table = make(storage, key=True)
    rows = write(storage, WriteKind.UPSERT, sizes)
    storage.take_kv_snapshots(PATH)

    result = run(storage, table, tmp_path)

    assert result["rows"] == rows
    assert result["peak"] < 1024 * MIB


SMALL_COLUMNS = (
    Column("id", DataType.parse("INT NOT NULL")),
    Column("name", DataType.parse("STRING NOT NULL")),
    Column("tags", DataType.parse("ARRAY<STRING>")),
    Column("places", DataType.parse("ROW<x DOUBLE, names MAP<STRING, INT>>")),
)
SYSTEM = (("__bucket", "INT"), ("__offset", "BIGINT"), ("__timestamp", "TIMESTAMP_LTZ(6)"))
MODULES_PROGRAM = """
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
    table = storage.create_table(PATH, TableDescriptor(SMALL_COLUMNS, ("id", "name"), ("id",), 1))

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
        storage.write(PATH, kind, pa.Table.from_pylist(rows, schema=arrow_schema(SMALL_COLUMNS)))

    write(WriteKind.UPSERT, list(range(19, -1, -1)))
    storage.take_kv_snapshots(PATH)
    write(WriteKind.UPSERT, [3, 4])
    write(WriteKind.DELETE, [5])
    (info,) = storage.buckets(PATH)
    assert info.latest_kv_snapshot is not None
    columns = [*SMALL_COLUMNS, *(Column(name, DataType.parse(kind)) for name, kind in SYSTEM)]
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

    run = subprocess.run([sys.executable, "-c", MODULES_PROGRAM, str(job)], capture_output=True, text=True, check=False)

    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stdout == "[20, 3] []"
