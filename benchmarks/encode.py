"""The yardstick: processes that only encode the same Arrow batches as ZSTD Parquet with pyarrow."""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet

from benchmarks import rows

_READY_SECONDS: Final = 120.0


def bare_encode_seconds(row_count: int, processes: int, folder: Path) -> float:
    """Return the elapsed seconds from when all processes have their batches in memory until the last one ends."""
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(processes + 1, timeout=_READY_SECONDS)
    share = row_count // processes
    workers = [
        context.Process(target=_encode, args=(number * share, share, folder / f"bare-{number}.parquet", ready))
        for number in range(processes)
    ]
    for worker in workers:
        worker.start()
    ready.wait()
    started = time.perf_counter()
    for worker in workers:
        worker.join()
    seconds = time.perf_counter() - started
    failed = [worker.exitcode for worker in workers if worker.exitcode]
    if failed:
        raise RuntimeError(f"encoding processes ended with exit codes {failed}")
    return seconds


def _encode(first_id: int, row_count: int, path: Path, ready: Barrier) -> None:
    batches = list(rows.batches(first_id, row_count))
    ready.wait()
    with pa.parquet.ParquetWriter(path, batches[0].schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)
