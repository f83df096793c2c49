"""Whole logs are read from the remote folder first, so that leaders of Fluss 1.0 are not asked for what is there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from fluss_reading import ObservedClient, bucket_of, ids_of
from fluss_tables import append, descriptor, new_table, rows

from fluss_tiering.storage.fluss.reading.reader import FlussSplitReader
from fluss_tiering.storage.fluss.rpc.calls.log import RemoteSegment, fetch_log
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from fluss_tiering.storage.fluss.rpc.table_json import ClusterTable
from waiting import wait_until

_SEGMENTS = 10
_ROWS = 2_000 * _SEGMENTS


@pytest.fixture
def copied(fluss: FlussClient) -> ClusterTable:
    """A log whose leader has all segments, while the remote folder has all but the last one."""
    made = new_table(fluss, descriptor(**{"table.log.tiered.local-segments": "1000"}))
    for start in range(0, _ROWS, 2_000):
        append(fluss, made, rows(start, start + 2_000), compression="NONE")
    return made


def segments_of(fluss: FlussClient, made: ClusterTable) -> list[RemoteSegment]:
    return list(fluss.call(fetch_log(made.info.path, bucket_of(made), 0, remote_first=True)).remote_segments)


def read(client, made: ClusterTable, columns: list[str] | None = None) -> list[int]:
    reader = FlussSplitReader(client)
    return ids_of(list(reader.read_log(made.info, bucket_of(made), 0, _ROWS, columns)))


@pytest.mark.fluss_versions("1.0")
def test_the_remote_folder_is_read_first(fluss: FlussClient, copied: ClusterTable) -> None:
    wait_until(lambda: len(segments_of(fluss, copied)) == _SEGMENTS - 1)
    segments = segments_of(fluss, copied)
    assert not fluss.call(fetch_log(copied.info.path, bucket_of(copied), 0)).remote_segments
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
    fluss: FlussClient, copied: ClusterTable, damage: str, caplog: pytest.LogCaptureFixture
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
def test_older_leaders_send_what_they_have(fluss: FlussClient, copied: ClusterTable) -> None:
    observed = ObservedClient(fluss)
    assert read(observed, copied) == list(range(_ROWS))
    assert observed.records_bytes > 0
    assert not segments_of(fluss, copied)
