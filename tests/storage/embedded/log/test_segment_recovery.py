"""Recovery of a log whose newest segment ends in each possible way."""

from pathlib import Path

import pytest
from embedded_tables import PATH, end_offsets, log_rows, log_table, open_storage, opened, read_rows, segments
from refusals import refused

from fluss_tiering.formats.log.batch import read_header
from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.table import TableBucket, WriteKind
from fluss_tiering.storage.embedded.segment_reader import scan_segment
from fluss_tiering.storage.embedded.segments import SegmentedLog

ROWS_PER_BATCH = 5
BATCHES = 3


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """A data folder with three batches. Its server ended before it wrote down where the logs end."""
    with opened(tmp_path) as storage:
        storage.create_table(PATH, log_table(properties={"table.log.arrow.compression.type": "NONE"}))
        for start in range(0, BATCHES * ROWS_PER_BATCH, ROWS_PER_BATCH):
            storage.write(PATH, WriteKind.APPEND, log_rows(start, start + ROWS_PER_BATCH))
    for noted in tmp_path.glob("tables/*/*/log-ends.json"):
        noted.unlink()
    return tmp_path


def positions(segment: Path) -> list[int]:
    """Return where the batches start, and the end of the last one."""
    data = memoryview(segment.read_bytes())
    found = [0]
    while (header := read_header(data, found[-1])) is not None:
        found.append(found[-1] + header.size)
    assert found[-1] == len(data)
    return found


def test_a_torn_tail_of_any_length_is_cut_off(crashed: Path) -> None:
    segment = segments(crashed)[0]
    whole = segment.read_bytes()
    *_, last, end = positions(segment)
    for size in range(last, end):
        segment.write_bytes(whole[:size])
        found = scan_segment(segment, 0)
        assert (found.size, found.end_offset) == (last, 2 * ROWS_PER_BATCH)
    segment.write_bytes(whole[: last + 60])
    with opened(crashed) as storage:
        assert end_offsets(storage) == [2 * ROWS_PER_BATCH]
        assert segment.read_bytes() == whole[:last]
        storage.write(PATH, WriteKind.APPEND, log_rows(10, 12))
        assert [row["id"] for row in read_rows(storage)] == list(range(12))


def test_what_is_cut_off_is_logged(crashed: Path, caplog: pytest.LogCaptureFixture) -> None:
    segment = segments(crashed)[0]
    *_, last, _ = positions(segment)
    whole = bytearray(segment.read_bytes())
    whole[-3] ^= 1
    segment.write_bytes(whole)
    with opened(crashed) as storage:
        assert end_offsets(storage) == [2 * ROWS_PER_BATCH]
    (warning,) = caplog.messages
    for word in (str(segment), f"{len(whole) - last} bytes", f"position {last}", f"offset {2 * ROWS_PER_BATCH}"):
        assert word in warning
    caplog.clear()
    with opened(crashed):
        assert caplog.messages == []


@pytest.mark.parametrize("rounds", [1, 2])
def test_rows_that_a_round_has_read_are_missed(tmp_path: Path, rounds: int) -> None:
    # Without this, new rows get offsets that the lake has, and are never tiered.
    with opened(tmp_path) as storage:
        table_id = storage.create_table(PATH, log_table()).table_id
        for number in range(rounds):
            storage.write(PATH, WriteKind.APPEND, log_rows(number * 5, number * 5 + 5))
            storage.write_lake_offsets(table_id, {TableBucket(table_id, 0): number * 5 + 5})
        (noted,) = tmp_path.glob("tables/*/*/log-ends.json")
        as_of_round = noted.read_bytes()
        storage.write(PATH, WriteKind.APPEND, log_rows(50, 55))
        assert noted.read_bytes() == as_of_round
    # The server was killed.
    noted.write_bytes(as_of_round)
    segment = segments(tmp_path)[0]
    *_, of_round, last, end = positions(segment)
    whole = segment.read_bytes()
    segment.write_bytes(whole[: end - 3])
    with opened(tmp_path) as storage:
        assert end_offsets(storage) == [5 * rounds]
    segment.write_bytes(whole[: last - 3])
    noted.write_bytes(as_of_round)
    with refused(ErrorCode.CORRUPT_DATA, f"offset {5 * rounds}, acknowledged before"):
        open_storage(tmp_path)
    assert segment.read_bytes() == whole[: last - 3]
    assert of_round < last


def test_zeros_that_a_lost_power_left_behind_are_cut_off(crashed: Path) -> None:
    segment = segments(crashed)[0]
    whole = segment.read_bytes()
    for zeros in (1, 20, 47, 48, 4096):
        segment.write_bytes(whole + bytes(zeros))
        found = scan_segment(segment, 0)
        assert (found.size, found.end_offset) == (len(whole), BATCHES * ROWS_PER_BATCH)


def test_a_last_batch_that_was_not_written_out_is_cut_off(crashed: Path) -> None:
    segment = segments(crashed)[0]
    whole = segment.read_bytes()
    segment.write_bytes(whole[:-64] + bytes(64))
    found = scan_segment(segment, 0)
    assert (found.size, found.end_offset) == (positions(segment)[-2], 2 * ROWS_PER_BATCH)


def test_damage_before_the_last_batch_is_refused_whichever_byte_it_hits(crashed: Path) -> None:
    segment = segments(crashed)[0]
    whole = segment.read_bytes()
    _, second, third, _ = positions(segment)
    # The checksum does not cover the magic byte and the commit timestamp; only a wrong magic byte is noticed.
    unchecked = range(second + 13, second + 21)
    for position in range(second, third):
        if position in unchecked:
            continue
        for flipped in (0x01, 0x80):
            damaged = bytearray(whole)
            damaged[position] ^= flipped
            segment.write_bytes(damaged)
            with refused(ErrorCode.CORRUPT_DATA, str(segment), "position", "restore the file from a backup"):
                scan_segment(segment, 0)


def test_a_damaged_log_keeps_the_server_from_starting_and_is_left_as_it_is(crashed: Path) -> None:
    segment = segments(crashed)[0]
    damaged = bytearray(segment.read_bytes())
    damaged[positions(segment)[1] + 100] ^= 1
    segment.write_bytes(damaged)
    with refused(ErrorCode.CORRUPT_DATA, str(segment), f"position {positions(segment)[1]}", "checksum"):
        open_storage(crashed)
    assert segment.read_bytes() == damaged


def test_a_lost_batch_in_between_is_refused(crashed: Path) -> None:
    segment = segments(crashed)[0]
    whole = segment.read_bytes()
    _, second, third, _ = positions(segment)
    segment.write_bytes(whole[:second] + whole[third:])
    with refused(ErrorCode.CORRUPT_DATA, str(segment), "holds the offsets 10 to 14", "expected 5"):
        scan_segment(segment, 0)


def test_a_segment_that_was_just_begun_is_written_on(crashed: Path) -> None:
    segments(crashed)[0].with_name(f"{BATCHES * ROWS_PER_BATCH:020d}.log").touch()
    with opened(crashed) as storage:
        assert end_offsets(storage) == [15]
        storage.write(PATH, WriteKind.APPEND, log_rows(15, 17))
        assert [row["id"] for row in read_rows(storage)] == list(range(17))


def test_what_was_not_published_is_not_there_after_a_rollback(tmp_path: Path) -> None:
    log = SegmentedLog.recover(tmp_path, segment_bytes=1 << 20, least_end_offset=0)
    log.stage([b"first"], 1, 0)
    log.rollback()
    assert list(tmp_path.iterdir()) == []
    log.stage([b"first"], 1, 0)
    log.sync()
    log.publish()
    log.stage([b" second", b" third"], 3, 0)
    log.sync()
    log.rollback()
    assert segments_in(tmp_path) == [b"first"]
    assert (log.end_offset, log.size_bytes) == (1, 5)
    log.stage([b" again"], 2, 0)
    log.sync()
    log.publish()
    assert segments_in(tmp_path) == [b"first again"]
    assert (log.end_offset, log.size_bytes) == (2, 11)


def segments_in(folder: Path) -> list[bytes]:
    return [segment.read_bytes() for segment in sorted(folder.iterdir())]
