"""The errors of a cluster's reader when its data are damaged, gone or out of reach."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fluss_reading import AlteringClient, bucket_of, ids_of, kv_table, moved_log, read
from fluss_tables import append, descriptor, new_table, rows, snapshot_behind, upsert
from refusals import refused

from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.table import TableInfo
from fluss_tiering.storage.fluss.reading.reader import FlussSplitReader
from fluss_tiering.storage.fluss.rpc.calls.kv import KvSnapshotFiles, kv_snapshot_files
from fluss_tiering.storage.fluss.rpc.calls.log import FetchedLog, fetch_log
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from fluss_tiering.storage.fluss.rpc.errors import FlussConnectionError, FlussError, FlussServerError
from waiting import wait_until


@pytest.fixture(scope="module")
def log(fluss_cluster) -> TableInfo:
    """Ten rows in two batches."""
    with FlussClient(fluss_cluster.bootstrap) as client:
        made = new_table(client, descriptor())
        append(client, made, rows(0, 5), compression="NONE")
        append(client, made, rows(5, 10), compression="NONE")
        return made


def reader_of(
    fluss: FlussClient, alter: Callable[[Any], Any] = lambda answer: answer, unavailable_timeout_s: float = 1.0
):
    return FlussSplitReader(AlteringClient(fluss, alter), unavailable_timeout_s=unavailable_timeout_s)


def with_records(change: Callable[[bytearray], None]) -> Callable[[Any], Any]:
    def alter(answer: Any) -> Any:
        if not isinstance(answer, FetchedLog):
            return answer
        records = bytearray(answer.records)
        change(records)
        return replace(answer, records=bytes(records))

    return alter


def flip_last(records: bytearray) -> None:
    records[-20] ^= 1


def test_a_damaged_batch_of_a_leader_is_refused_where_it_stands(fluss: FlussClient, log: TableInfo) -> None:
    reader = reader_of(fluss, with_records(flip_last))
    with refused(ErrorCode.CORRUPT_DATA, "checksum", "at position 352", str(bucket_of(log)), str(log.path), "offset 0"):
        read(reader, log, 0, 10)
    # The rows before it are read.
    assert ids_of(read(reader, log, 0, 5)) == list(range(5))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda records: records.__delitem__(slice(40, None)), "holds no batch"),
        (lambda records: records.__setitem__(0, 3), "continues at offset 3: expected 0"),
    ],
)
def test_what_is_no_log_is_refused(fluss: FlussClient, log: TableInfo, change, message: str) -> None:
    with refused(ErrorCode.CORRUPT_DATA, message, str(bucket_of(log))):
        read(reader_of(fluss, with_records(change)), log, 0, 10)


def test_a_batch_of_an_unknown_magic_is_refused_for_its_table_alone(fluss: FlussClient, log: TableInfo) -> None:
    moved = moved_log(fluss)
    first = fluss.call(fetch_log(moved.path, bucket_of(moved), 0)).remote_segments[0]
    segment = Path(first.path.removeprefix("file:"))
    data = bytearray(segment.read_bytes())
    data[12] = 3
    segment.write_bytes(data)
    reader = reader_of(fluss)
    with refused(
        ErrorCode.UNSUPPORTED_VERSION, segment.name, str(moved.path), "magic 3, expected one of 0, 1, 2", "newer"
    ):
        read(reader, moved, 0, 10_000)
    assert ids_of(read(reader, log, 0, 10)) == list(range(10))
    # What a leader sends is refused as well.
    change = with_records(lambda records: records.__setitem__(12, 9))
    with refused(ErrorCode.UNSUPPORTED_VERSION, "magic 9", str(bucket_of(log))):
        list(reader_of(fluss, change).read_log(log, bucket_of(log), 0, 10, ["id"]))


def test_a_leader_that_deletes_segments_is_asked_again(fluss: FlussClient, log: TableInfo) -> None:
    refusals = [FlussServerError.of(19, "we only have log segments from offset 0 up to 10", "the log")] * 2

    def alter(answer: Any) -> Any:
        if isinstance(answer, FetchedLog) and refusals:
            raise refusals.pop()
        return answer

    assert ids_of(read(reader_of(fluss, alter, 60.0), log, 0, 10)) == list(range(10))
    assert not refusals


def test_offsets_out_of_range_are_refused(fluss: FlussClient, log: TableInfo) -> None:
    with refused(ErrorCode.LOG_OFFSET_OUT_OF_RANGE, str(bucket_of(log)), "offset 11"):
        read(reader_of(fluss), log, 11, 12)
    # A new leader may learn only after a moment that the log is safe up to there.
    with refused(ErrorCode.UNAVAILABLE, str(bucket_of(log)), "reaches only offset 10: expected 12"):
        read(reader_of(fluss), log, 5, 12)


def test_an_offset_that_the_leader_moves_at_this_moment_is_asked_for_again(fluss: FlussClient, log: TableInfo) -> None:
    refusals = 2

    def refuse_first(answer: Any) -> Any:
        nonlocal refusals
        if isinstance(answer, FetchedLog) and refusals:
            refusals -= 1
            raise FlussServerError(FlussError.LOG_OFFSET_OUT_OF_RANGE_EXCEPTION, "only from offset 0 up to 10")
        return answer

    assert ids_of(read(reader_of(fluss, refuse_first, unavailable_timeout_s=20), log, 2, 9)) == list(range(2, 9))
    assert not refusals

    def refuse(answer: Any) -> Any:
        if isinstance(answer, FetchedLog):
            refusal = "only from offset 0 up to 10"
            raise FlussServerError(FlussError.LOG_OFFSET_OUT_OF_RANGE_EXCEPTION, refusal, str(bucket_of(log)))
        return answer

    # It is not told as a log that is lost, which a round may be told to skip.
    with refused(ErrorCode.UNAVAILABLE, str(bucket_of(log)), "only from offset 0 up to 10"):
        read(reader_of(fluss, refuse), log, 2, 9)


def test_what_the_cluster_deleted_since_it_is_in_the_lake_is_not_waited_for(fluss: FlussClient, log: TableInfo) -> None:
    def nothing(answer: Any) -> Any:
        return replace(answer, records=b"") if isinstance(answer, FetchedLog) else answer

    with refused(ErrorCode.LOG_OFFSET_OUT_OF_RANGE, str(bucket_of(log)), "from offset 3 on", "ends at 10"):
        read(reader_of(fluss, nothing), log, 3, 10)


def test_a_leader_that_moves_or_hangs_up_is_waited_for(fluss: FlussClient, log: TableInfo) -> None:
    # Fluss #4452
    failures = [
        FlussServerError(FlussError.NOT_LEADER_OR_FOLLOWER, "moved"),
        FlussConnectionError("gone", outcome_unknown=True),
    ]

    def fail_first(answer: Any) -> Any:
        if failures:
            raise failures.pop()
        return answer

    assert ids_of(read(reader_of(fluss, fail_first, unavailable_timeout_s=20), log, 2, 9)) == list(range(2, 9))
    assert not failures

    def fail(answer: Any) -> Any:
        raise FlussServerError(FlussError.NOT_LEADER_OR_FOLLOWER, "moved", str(bucket_of(log)))

    with refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(bucket_of(log))):
        read(reader_of(fluss, fail), log, 0, 10)


def test_a_dropped_table_is_not_waited_for(fluss: FlussClient, log: TableInfo) -> None:
    dropped = replace(log, table_id=log.table_id + 1_000)
    with refused(ErrorCode.TABLE_NOT_EXIST, str(bucket_of(dropped))):
        read(reader_of(fluss), dropped, 0, 10)


def test_remote_segments_that_are_damaged_or_missing_are_named(fluss: FlussClient) -> None:
    made = moved_log(fluss)
    segment = fluss.call(fetch_log(made.path, bucket_of(made), 0)).remote_segments[0]
    file = Path(segment.path.removeprefix("file:"))
    content = file.read_bytes()
    reader = reader_of(fluss)

    file.write_bytes(content[:-20] + bytes([content[-20] ^ 1]) + content[-19:])
    with refused(ErrorCode.CORRUPT_DATA, "checksum", segment.path, str(bucket_of(made))):
        read(reader, made, 0, 10_000)
    file.write_bytes(content[:-20])
    with refused(ErrorCode.CORRUPT_DATA, "ends at byte", segment.path, str(bucket_of(made))):
        read(reader, made, 0, 10_000)
    file.unlink()
    with refused(ErrorCode.CORRUPT_DATA, "is missing", segment.path, str(bucket_of(made))):
        read(reader, made, 0, 10_000)
    file.write_bytes(content)
    assert ids_of(read(reader, made, 0, 10_000)) == list(range(10_000))


def with_first_segment(path: Callable[[str], str], times: int) -> Callable[[Any], Any]:
    left = [None] * times

    def alter(answer: Any) -> Any:
        if isinstance(answer, FetchedLog) and answer.remote_segments and left:
            left.pop()
            first = replace(answer.remote_segments[0], path=path(answer.remote_segments[0].path))
            return replace(answer, remote_segments=(first, *answer.remote_segments[1:]))
        return answer

    return alter


def test_a_segment_that_has_moved_is_asked_for_again(fluss: FlussClient) -> None:
    made = moved_log(fluss)
    reader = reader_of(fluss, with_first_segment(lambda path: f"{path}.old", times=1))
    assert ids_of(read(reader, made, 0, 10_000)) == list(range(10_000))
    for stale in ("hdfs://old-namenode:8020/fluss", "store://old/fluss"):
        reader = reader_of(fluss, with_first_segment(lambda path, stale=stale: stale + path[5:], times=9))
        with refused(ErrorCode.STORAGE, stale, "remote.data.dir"):
            read(reader, made, 0, 10_000)


def rows_of(reader: FlussSplitReader, made: TableInfo, snapshot) -> int:
    return sum(batch.num_rows for batch in reader.read_kv_snapshot(made, snapshot, None, None))


def test_a_snapshot_that_is_gone_is_told(fluss: FlussClient) -> None:
    made, first = kv_table(fluss)
    assert rows_of(reader_of(fluss), made, first) == 100
    # One snapshot is retained, and no lease protects the first one.  # L1
    snapshot_behind(fluss, made, upsert(fluss, made, rows(100, 102)))

    def gone() -> bool:
        try:
            fluss.call(kv_snapshot_files(first.bucket, first.snapshot_id))
        except FlussServerError:
            return True
        return False

    wait_until(gone)
    named = (f"KV snapshot {first.snapshot_id} of {first.bucket}", str(made.path))
    with refused(ErrorCode.KV_SNAPSHOT_NOT_EXIST, *named):
        rows_of(reader_of(fluss), made, first)
    with refused(ErrorCode.KV_SNAPSHOT_NOT_EXIST, *named):
        reader_of(fluss).measure_kv_snapshot(made, first)


def with_files(change: Callable[[dict[str, str]], None]) -> Callable[[Any], Any]:
    def alter(answer: Any) -> Any:
        if not isinstance(answer, KvSnapshotFiles):
            return answer
        files = dict(answer.files)
        change(files)
        return replace(answer, files=files)

    return alter


def test_files_of_a_snapshot_that_are_missing_or_damaged_are_told(
    fluss: FlussClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "own"))
    (tmp_path / "own").mkdir()
    made, snapshot = kv_table(fluss)
    named = f"KV snapshot {snapshot.snapshot_id} of {snapshot.bucket}"

    def table_file(files: dict[str, str]) -> str:
        return next(name for name in files if name.endswith(".sst"))

    def miss(files: dict[str, str]) -> None:
        files[table_file(files)] += ".gone"

    def damage(files: dict[str, str]) -> None:
        name = table_file(files)
        content = bytearray(Path(files[name].removeprefix("file:")).read_bytes())
        content[20] ^= 1
        (tmp_path / name).write_bytes(content)
        files[name] = f"file:{tmp_path / name}"

    def climb(files: dict[str, str]) -> None:
        files["../outside"] = files[table_file(files)]

    for change, message in ((miss, ".gone is missing"), (damage, "cannot be read"), (climb, "'../outside'")):
        with refused(ErrorCode.CORRUPT_DATA, named, message):
            rows_of(reader_of(fluss, with_files(change)), made, snapshot)
    reading = reader_of(fluss).read_kv_snapshot(made, snapshot, None, None)
    assert next(reading).num_rows == 100
    reading.close()
    assert list((tmp_path / "own").iterdir()) == []
