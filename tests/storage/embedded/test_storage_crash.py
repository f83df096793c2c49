"""SIGKILL at any moment: acknowledged rows are there once, and the rows by key match the log."""

import subprocess
import sys
import time
from itertools import takewhile
from pathlib import Path
from random import Random
from typing import Any

import crash_writer
import pyarrow as pa
import pytest
from crash_writer import LOG_PATH, ROWS_PER_STEP, SEGMENT_BYTES, kv_step
from embedded_tables import (
    PATH,
    kv_table,
    log_table,
    opened,
    read_changes,
    read_rows,
    read_snapshots,
    replayed,
)

from fluss_tiering.formats.bucketing import assign_buckets
from fluss_tiering.model.table import DataType, WriteKind
from fluss_tiering.storage.embedded.storage import EmbeddedStorage

ROUNDS = 4
BUCKETS = 2
Rows = dict[Any, dict[str, Any]]


def write_until_killed(folder: Path, first_step: int, until: str, seconds: float) -> list[str]:
    """Kill the writer some moments after it has said `until`, and return what it acknowledged."""
    writer = subprocess.Popen(
        [sys.executable, crash_writer.__file__, str(folder), str(first_step)], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    acknowledged = list(takewhile(lambda line: line != until, map(str.strip, writer.stdout)))
    time.sleep(seconds)
    writer.kill()
    acknowledged.extend([until, *writer.stdout.read().splitlines()])
    assert writer.wait(timeout=30) == -9
    return acknowledged


def last_step(acknowledged: list[str], kind: str, before: int) -> int:
    return max([int(line.split()[1]) for line in acknowledged if line.startswith(kind)], default=before)


def applied(rows: Rows, step: int) -> Rows:
    kind, changed = kv_step(step)
    rows = dict(rows)
    for row in changed:
        key = (row["id"], "eu")
        if kind is WriteKind.DELETE:
            rows.pop(key, None)
        else:
            rows[key] = {"region": "eu", **row}
    return rows


def bucket_of(key: tuple[int, str]) -> int:
    return int(assign_buckets(pa.array([key[0]], pa.int32()), DataType.parse("INT NOT NULL"), BUCKETS)[0])


def in_bucket(rows: Rows, bucket: int) -> Rows:
    return {key: row for key, row in rows.items() if bucket_of(key) == bucket}


def check_log(storage: EmbeddedStorage, known: set[int], first_step: int, last: int) -> set[int]:
    """Check the ids of the log table: all acknowledged ones, and any part of the step after them."""
    found = [row["id"] for row in read_rows(storage, LOG_PATH)]
    assert len(set(found)) == len(found)
    acknowledged = known | set(range(first_step * ROWS_PER_STEP, (last + 1) * ROWS_PER_STEP))
    assert acknowledged <= set(found)
    assert set(found) - acknowledged <= set(range((last + 1) * ROWS_PER_STEP, (last + 2) * ROWS_PER_STEP))
    return set(found)


def check_kv(storage: EmbeddedStorage, acknowledged: Rows, last: int) -> Rows:
    """Check the rows by key: each bucket is as acknowledged or one step further, and its log and store agree."""
    found: Rows = {}
    for bucket in range(BUCKETS):
        rows = replayed(read_changes(storage, bucket))
        assert rows in (in_bucket(acknowledged, bucket), in_bucket(applied(acknowledged, last + 1), bucket))
        found |= rows
    for info in storage.buckets(PATH):
        snapshot = info.latest_kv_snapshot
        if snapshot is not None:
            batches = storage.reader().read_kv_snapshot(storage.table(PATH), snapshot, None, None)
            at_snapshot = {(row["id"], row["region"]): row for batch in batches for row in batch.to_pylist()}
            assert len(at_snapshot) == snapshot.row_count
            rest = read_changes(storage, info.bucket.bucket, snapshot.log_offset)
            assert replayed(rest, at_snapshot) == in_bucket(found, info.bucket.bucket)
    taken = storage.take_kv_snapshots(PATH)
    assert read_snapshots(storage) == found
    assert sum(snapshot.row_count for snapshot in taken) == len(found)
    return found


@pytest.mark.system
def test_a_killed_writer_loses_nothing_that_it_acknowledged(tmp_path: Path) -> None:
    random = Random(20_261_121)
    with opened(tmp_path, segment_bytes=SEGMENT_BYTES) as storage:
        storage.create_table(LOG_PATH, log_table(BUCKETS, bucket_keys=("id",)))
        storage.create_table(PATH, kv_table(BUCKETS))
    ids: set[int] = set()
    rows: Rows = {}
    step = 0
    for number in range(ROUNDS):
        until = "open" if number == 2 else f"{random.choice(['log', 'kv'])} {step + random.randrange(10)}"
        acknowledged = write_until_killed(tmp_path, step, until, random.uniform(0, 0.02))
        last_log = last_step(acknowledged, "log", step - 1)
        last_kv = last_step(acknowledged, "kv", step - 1)
        for done in range(step, last_kv + 1):
            rows = applied(rows, done)
        with opened(tmp_path, segment_bytes=SEGMENT_BYTES) as storage:
            ids = check_log(storage, ids, step, last_log)
            rows = check_kv(storage, rows, last_kv)
        step = last_log + 2
    assert step > 2 * ROUNDS
