"""Logs that go on in the remote folder, which is read first where it can be, and segments that do not fit."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fluss_reading import ObservedClient, bucket_of, ids_of
from fluss_tables import COLUMNS, append, descriptor, new_table, rows
from refusals import refused

from fluss_tiering.formats.log.batch import encode_log_batch
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.table import TableBucket, TableInfo, TablePath
from fluss_tiering.storage.fluss.reading.reader import FlussSplitReader
from fluss_tiering.storage.fluss.rpc.calls.log import FetchedLog, RemoteSegment, fetch_log
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from waiting import wait_until

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


_SEGMENTS = 10
_ROWS = 2_000 * _SEGMENTS


@pytest.fixture
def copied(fluss: FlussClient) -> TableInfo:
    """A log whose leader has all segments, while the remote folder has all but the last one."""
    made = new_table(fluss, descriptor(**{"table.log.tiered.local-segments": "1000"}))
    for start in range(0, _ROWS, 2_000):
        append(fluss, made, rows(start, start + 2_000), compression="NONE")
    return made


def segments_of(fluss: FlussClient, made: TableInfo) -> list[RemoteSegment]:
    return list(fluss.call(fetch_log(made.path, bucket_of(made), 0, remote_first=True)).remote_segments)


def read(client, made: TableInfo, columns: list[str] | None = None) -> list[int]:
    reader = FlussSplitReader(client)
    return ids_of(list(reader.read_log(made, bucket_of(made), 0, _ROWS, columns)))


@pytest.mark.fluss_versions("1.0")
def test_the_remote_folder_is_read_first(fluss: FlussClient, copied: TableInfo) -> None:
    wait_until(lambda: len(segments_of(fluss, copied)) == _SEGMENTS - 1)
    segments = segments_of(fluss, copied)
    assert not fluss.call(fetch_log(copied.path, bucket_of(copied), 0)).remote_segments
    size = sum(segment.size_bytes for segment in segments)
    observed = ObservedClient(fluss)
    assert read(observed, copied) == list(range(_ROWS))
    # The leader sends what is behind these segments, which is a tenth.
    assert 0 < observed.records_bytes < size / 8
    # It is asked where it has less to send: one column of two.
    cut = ObservedClient(fluss)
    assert read(cut, copied, ["id"]) == list(range(_ROWS))
    assert cut.records_bytes > size / 8


@pytest.mark.fluss_versions("1.0")
@pytest.mark.parametrize("damage", ["missing", "torn", "unreachable"])
def test_the_leader_is_asked_where_the_remote_folder_fails(
    fluss: FlussClient, copied: TableInfo, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    wait_until(lambda: len(segments_of(fluss, copied)) >= 5)
    segment = Path(segments_of(fluss, copied)[2].path.removeprefix("file:"))
    if damage == "missing":
        segment.unlink()
    elif damage == "torn":
        segment.write_bytes(segment.read_bytes()[:-1])
    else:
        segment.unlink()
        segment.mkdir()
    observed = ObservedClient(fluss)
    assert read(observed, copied) == list(range(_ROWS))
    assert observed.records_bytes > 0
    assert segment.name in caplog.text
    if damage == "unreachable":
        shutil.rmtree(segment)


@pytest.mark.fluss_versions("0.9.1")
def test_older_leaders_send_what_they_have(fluss: FlussClient, copied: TableInfo) -> None:
    observed = ObservedClient(fluss)
    assert read(observed, copied) == list(range(_ROWS))
    assert observed.records_bytes > 0
    assert not segments_of(fluss, copied)
