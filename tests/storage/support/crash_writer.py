"""A program that writes to a data folder until it is killed, and prints what was acknowledged."""

import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from embedded_tables import PATH, collect, kv_keys, kv_rows, log_rows, open_storage

from fluss_tiering.model.table import TablePath, WriteKind

LOG_PATH = TablePath("shop", "clicks")
ROWS_PER_STEP = 50
SEGMENT_BYTES = 20_000


def kv_step(step: int) -> tuple[WriteKind, list[dict[str, Any]]]:
    """Return the changes that a step makes to the primary-key table."""
    random = Random(step)
    if step % 3 == 2:
        return WriteKind.DELETE, [{"id": random.randrange(200)} for _ in range(30)]
    return WriteKind.UPSERT, [{"id": random.randrange(200), "name": f"step {step}", "amount": None} for _ in range(60)]


def write_forever(folder: Path, first_step: int) -> Iterator[str]:
    storage = open_storage(folder, segment_bytes=SEGMENT_BYTES)
    yield "open"
    for step in count(first_step):
        storage.write(LOG_PATH, WriteKind.APPEND, log_rows(step * ROWS_PER_STEP, (step + 1) * ROWS_PER_STEP))
        yield f"log {step}"
        kind, rows = kv_step(step)
        changed = kv_rows(rows) if kind is WriteKind.UPSERT else kv_keys(*(row["id"] for row in rows))
        storage.write(PATH, kind, changed)
        yield f"kv {step}"
        if step % 5 == 4:
            storage.take_kv_snapshots(PATH)
            collect(storage)


if __name__ == "__main__":
    for line in write_forever(Path(sys.argv[1]), int(sys.argv[2])):
        print(line, flush=True)  # noqa: T201 - what the program is for
