"""One bucket with gigabytes of changes to catch up: few snapshots, bounded memory, and the last change of every key."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import psutil
import pyarrow as pa
import pytest

from engine_support import ServerProcess
from fluss_tiering.client import TieringClient
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.table import Column, DataType, TableDescriptor, TablePath, WriteKind
from judges import DUCKDB, newest_metadata, read

pytestmark = [pytest.mark.system, pytest.mark.long]

BYTES: Final = int(os.environ.get("HOT_BUCKET_BYTES", str(10_000_000_000)))
PAYLOAD: Final = 1_000
ROWS: Final = BYTES // PAYLOAD
KEYS: Final = min(200_000, ROWS // 50)
BATCH: Final = 20_000
MAX_SNAPSHOTS: Final = 16
"""The snapshots that a bucket's changes may make in a round, as `PlanLimits` says."""
PATH: Final = TablePath("db", "hot")
COLUMNS: Final = (
    Column("id", DataType.parse("BIGINT NOT NULL")),
    Column("change", DataType.parse("BIGINT")),
    Column("payload", DataType.parse("BYTES")),
)
POOL: Final = np.frombuffer(np.random.default_rng(52).bytes(8 << 20), np.uint8)
"""Bytes that cannot be compressed, from which each payload is a part."""
MIB: Final = 1 << 20


class PeakMemory:
    """The greatest memory of the processes that a process starts, by their kind."""

    def __init__(self, pid: int) -> None:
        self.peaks: dict[str, int] = {}
        self._process = psutil.Process(pid)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(0.2):
            try:
                present = [self._process, *self._process.children(recursive=True)]
            except psutil.Error:
                return
            for each in present:
                try:
                    command = " ".join(each.cmdline()[:1])
                    status = Path(f"/proc/{each.pid}/status").read_text()
                except (psutil.Error, OSError):
                    continue
                peak = next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")), 0)
                kind = "driver" if each.pid == self._process.pid else "jvm" if "java" in command else "worker"
                self.peaks[kind] = max(self.peaks.get(kind, 0), peak * 1024)


def starts(ids: npt.NDArray[np.int64], changes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return where in the pool the payload of each change begins."""
    return (ids * 7919 + changes * 104_729) % (len(POOL) - PAYLOAD)


def batches(last: npt.NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
    """Yield the changes, and note the last change of each key; -1 for a key without one."""
    random = np.random.default_rng(1)
    schema = arrow_schema(COLUMNS)
    within = np.arange(PAYLOAD)
    for first in range(0, ROWS, BATCH):
        changes = np.arange(first, min(first + BATCH, ROWS))
        # Nine of ten changes are of a tenth of the keys.
        hot = random.random(len(changes)) < 0.9
        ids = np.where(hot, random.integers(0, KEYS // 10, len(changes)), random.integers(0, KEYS, len(changes)))
        np.maximum.at(last, ids, changes)
        data = POOL[starts(ids, changes)[:, None] + within].reshape(-1)
        offsets = np.arange(0, len(data) + 1, PAYLOAD, dtype=np.int32)
        payload = pa.BinaryArray.from_buffers(
            pa.binary(), len(changes), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        )
        yield pa.record_batch([pa.array(ids), pa.array(changes), payload], schema=schema)


# D52
@pytest.mark.timeout(5400)
def test_a_bucket_with_ten_gigabytes_to_catch_up(tmp_path: Path, record_property):
    server = ServerProcess(tmp_path, FLUSS_TIERING_KV_SNAPSHOT_INTERVAL="1d").start()
    last = np.full(KEYS, -1, np.int64)
    try:
        with TieringClient(server.target) as client:
            properties = {"table.datalake.enabled": "true", "table.datalake.freshness": "1d"}
            client.create_table(PATH, TableDescriptor(COLUMNS, ("id",), ("id",), 1, properties=properties))
            changes = batches(last)
            for _ in client.write_rows(PATH, WriteKind.UPSERT, [next(changes)]):
                pass
            # The table is in the lake with its first rows, so that all others are changes.
            tier(server.target)
            for _ in client.write_rows(PATH, WriteKind.UPSERT, changes):
                pass
            known = client.lake_snapshot(PATH)
            assert known is not None

            result, peaks = tier(server.target)

            table = client.get_tables([PATH])[0]
        record_property("peaks", {kind: f"{peak / MIB:.0f} MiB" for kind, peak in peaks.items()})
        record_property("result", result)
        assert peaks["worker"] < 1024 * MIB
        assert peaks["driver"] < 1024 * MIB
        assert peaks["jvm"] < 1536 * MIB
        location = Path(table.lake_catalog_properties["warehouse"].removeprefix("file://")) / "db" / "hot"
        metadata = newest_metadata(location)
        snapshots = json.loads(Path(metadata).read_text())["snapshots"]
        assert 1 < len(snapshots) <= 1 + MAX_SNAPSHOTS
        record_property("snapshots", len(snapshots))
        assert equal(metadata, last)
    finally:
        server.kill()


def tier(target: str) -> tuple[dict[str, object], dict[str, int]]:
    """Tier the table as a program of its own, and return what it says and the peak memory of its processes in bytes."""
    program = str(Path(sys.executable).with_name("fluss-tiering"))
    command = [program, "tier", str(PATH), "--master", "local[2]", "--server", target, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process, PeakMemory(process.pid) as memory:
        output, _ = process.communicate()
    assert process.returncode == 0, output
    (result,) = json.loads(output)
    return result, memory.peaks


def equal(metadata: str, last: npt.NDArray[np.int64]) -> bool:
    """Return whether DuckDB finds the last change of each key in the lake, and its payload."""
    rows = read(DUCKDB, metadata, columns=["id", "change", "payload"]).sort_by("id").combine_chunks()
    ids, changes = (rows.column(name).to_numpy() for name in ("id", "change"))
    if not (np.array_equal(ids, np.flatnonzero(last >= 0)) and np.array_equal(changes, last[ids])):
        return False
    found = [zlib.crc32(each.as_buffer()) for each in rows.column("payload")]
    return found == [zlib.crc32(POOL[start : start + PAYLOAD]) for start in starts(ids, changes).tolist()]
