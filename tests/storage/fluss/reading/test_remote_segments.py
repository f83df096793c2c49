"""A log that goes on in the remote folder, where what the leader names does not fit what was read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from fluss_tables import COLUMNS, descriptor
from refusals import refused

from fluss_tiering.formats.log.batch import encode_log_batch
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.table import TableBucket, TableInfo, TablePath
from fluss_tiering.storage.fluss.reading.reader import FlussSplitReader
from fluss_tiering.storage.fluss.rpc.calls.log import FetchedLog, RemoteSegment

BUCKET = TableBucket(1, 0)
TABLE = TableInfo(1, TablePath("shop", "orders"), 1, descriptor(), 0)


def batch(start: int, end: int) -> bytes:
    rows = [{"id": number, "name": "n"} for number in range(start, end)]
    records = pa.RecordBatch.from_pylist(rows, schema=arrow_schema(COLUMNS))
    return encode_log_batch(start, 0, records, schema_id=1, change_types=None, compression="ZSTD")


class Client:
    """A leader with these answers about the log, each for one offset."""

    def __init__(self, answers: dict[int, FetchedLog]) -> None:
        self._answers = answers
        self.asked = 0

    def call(self, call: Any, **_: Any) -> Any:
        self.asked += 1
        assert self.asked < 100, "it asks for ever"
        return self._answers[call.request.tables_req[0].buckets_req[0].fetch_offset]


def ids(answers: dict[int, FetchedLog], end: int) -> list[int]:
    client: Any = Client(answers)
    reader = FlussSplitReader(client, unavailable_timeout_s=0.1)
    found = reader.read_log(TABLE, BUCKET, 0, end)
    return [number for each in found for number in each.records.column("id").to_pylist()]


def remote(folder: Path, start: int, end: int) -> RemoteSegment:
    file = folder / f"{start}.log"
    file.write_bytes(batch(start, end))
    return RemoteSegment(str(file), start, end, file.stat().st_size)


def test_a_gap_between_a_leader_and_the_remote_folder_is_told(tmp_path: Path) -> None:
    answers = {
        0: FetchedLog(batch(0, 4), 8),
        4: FetchedLog(b"", 8, (remote(tmp_path, 5, 8),)),
    }
    with refused(ErrorCode.CORRUPT_DATA, "continues at offset 5: expected 4"):
        ids(answers, 8)


def test_segments_that_end_before_the_offset_are_not_read_for_ever(tmp_path: Path) -> None:
    answers = {
        0: FetchedLog(batch(0, 4), 8),
        4: FetchedLog(b"", 8, (remote(tmp_path, 0, 4),)),
    }
    with refused(ErrorCode.CORRUPT_DATA, "has no offset 4"):
        ids(answers, 8)
