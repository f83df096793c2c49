"""How scanners are refused, fail, end and expire: what callers are told, and that nothing stays open or is counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from scan_support import CountingScan

from engine_support import VirtualClock, refusal
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket
from fluss_tiering.server.core.scans.manager import KvScannerManager
from fluss_tiering.server.core.scans.scanner import ScannerLimits, ScanStep
from fluss_tiering.server.services.kv_scan import open_scanner, read_rows

TTL = 600_000
KEPT = 60_000
B0, B1 = TableBucket(1, 0), TableBucket(1, 1)


class Storage:
    """A storage that opens the given scan, and keeps what it was called with."""

    def __init__(self, scan: CountingScan | None, *, admits: bool = True) -> None:
        self.scan = scan
        self.admits = admits
        self.buckets: list[TableBucket] = []
        self.on_lost: Callable[[], None] = lambda: None
        self.while_opening: Callable[[], None] = lambda: None

    def open_kv_scan(
        self, bucket: TableBucket, *, admit: Callable[[], None], on_lost: Callable[[], None]
    ) -> tuple[int, CountingScan | None]:
        self.buckets.append(bucket)
        self.on_lost = on_lost
        if self.admits:
            admit()
        self.while_opening()
        return 77, self.scan


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def scanners(clock: VirtualClock) -> KvScannerManager:
    return KvScannerManager(clock, ScannerLimits(TTL, max_per_bucket=2, max_per_server=3, max_batch_size=1 << 20))


def opened(scanners: KvScannerManager, storage: Any, limit: int | None = None) -> ScanStep:
    _, step = open_scanner(scanners, storage, B0, limit, "me")
    assert step is not None
    return step


def scanning(scanners: KvScannerManager, scan: CountingScan, bucket: TableBucket = B0) -> bytes:
    """A scanner that has given its first four rows; its id."""
    scanner_id = scanners.reserve(bucket, "me")
    read_rows(scanners, scanners.opened(scanner_id, scan, None), 1000)  # type: ignore[arg-type]
    return scanner_id


def go_on(scanners: KvScannerManager, scanner_id: bytes, *call_seq_ids: int) -> None:
    for call_seq_id in call_seq_ids:
        read_rows(scanners, scanners.begin(scanner_id, call_seq_id, "me"), 1000)


# What callers are told


def test_who_finds_no_free_slot_hears_which_limit_it_is(scanners: KvScannerManager) -> None:  # K2
    scanners.reserve(B0, "me")
    scanners.reserve(B0, "me")
    bucket = refusal(lambda: scanners.reserve(B0, "me"))
    scanners.reserve(B1, "me")
    server = refusal(lambda: scanners.reserve(B1, "me"))
    assert bucket.code is server.code is ErrorCode.TOO_MANY_SCANNERS
    assert bucket.message.startswith(f"{B0} has 2 open scanners, and kv.scanner.max-per-bucket allows no more")
    assert server.message.startswith("the server has 3 open scanners, and kv.scanner.max-per-server allows no more")


def test_a_scanner_is_named_in_errors_as_far_as_that_is_of_use(scanners: KvScannerManager) -> None:  # K10
    named = refusal(lambda: scanners.begin(b"\x0a\xff", 1, "me")).message
    nameless = refusal(lambda: scanners.begin(b"", 1, "me")).message
    long = refusal(lambda: scanners.begin(b"\xab" * 1000, 1, "me")).message
    assert named.startswith("scanner 0aff is unknown: ")
    assert nameless.startswith("scanner without an id is unknown: ")
    assert long.startswith(f"scanner {'ab' * 32} is unknown: ")


# Slots


# K2, K13, K17
def test_a_bucket_with_other_scanners_has_one_free_slot_when_one_ends(scanners: KvScannerManager) -> None:
    scan = CountingScan()
    first, _ = (scanning(scanners, each) for each in (scan, CountingScan()))
    scanners.close(first, "me")
    assert (scan.closed, scanners.open_count) == (1, 1)
    scanners.reserve(B0, "me")
    assert refusal(lambda: scanners.reserve(B0, "me")).code is ErrorCode.TOO_MANY_SCANNERS
    scanners.reserve(B1, "me")


def test_closing_a_finished_scanner_ends_what_was_kept_for_a_lost_answer(scanners: KvScannerManager) -> None:  # K13
    scan = CountingScan()
    scanner_id = scanning(scanners, scan)
    go_on(scanners, scanner_id, 1, 2)
    assert (scan.closed, scanners.open_count) == (0, 0)
    scanners.close(scanner_id, "me")
    assert scan.closed == 1
    assert refusal(lambda: scanners.begin(scanner_id, 2, "me")).code is ErrorCode.UNKNOWN_SCANNER_ID


def test_a_scanner_that_was_closed_while_its_read_fails_has_ended(scanners: KvScannerManager) -> None:  # K13, K16
    scan = CountingScan()
    scanner_id = scanning(scanners, scan)
    step = scanners.begin(scanner_id, 1, "me")
    scanners.close(scanner_id, "me")
    scan.broken = True
    assert refusal(lambda: read_rows(scanners, step, 1000)).code is ErrorCode.CORRUPT_DATA
    assert (scan.closed, scanners.open_count) == (1, 0)


def test_a_finished_scanner_of_a_lost_bucket_answers_that_it_expired(scanners: KvScannerManager) -> None:  # K12
    scanner_id = scanning(scanners, CountingScan())
    go_on(scanners, scanner_id, 1, 2)
    scanners.lost(scanner_id)
    assert refusal(lambda: scanners.begin(scanner_id, 2, "me")).code is ErrorCode.SCANNER_EXPIRED
    scanners.lost(b"never heard of")
    scanners.abandon(b"never heard of")


# Time


def test_a_scanner_that_is_being_opened_does_not_expire(scanners: KvScannerManager, clock: VirtualClock) -> None:  # K10
    scanner_id = scanners.reserve(B0, "me")
    clock.advance(2 * TTL)
    assert scanners.drop_expired() == 0
    scan = CountingScan()
    step = scanners.opened(scanner_id, scan, None)  # type: ignore[arg-type]
    scanners.close(scanner_id, "me")
    assert scan.closed == 0, "its first read is under way"
    read_rows(scanners, step, 1000)
    assert (scan.closed, scanners.open_count) == (1, 0)


@pytest.mark.parametrize("call_seq_id", [0, 1])
def test_a_failed_call_keeps_a_scanner_alive_from_its_beginning_on(  # K10, K16
    scanners: KvScannerManager, clock: VirtualClock, call_seq_id: int
) -> None:
    scan = CountingScan()
    if call_seq_id == 0:
        step = scanners.opened(scanners.reserve(B0, "me"), scan, None)  # type: ignore[arg-type]
    else:
        scanner_id = scanning(scanners, scan)
        clock.advance(TTL)
        step = scanners.begin(scanner_id, 1, "me")
    scan.broken = True
    refusal(lambda: read_rows(scanners, step, 1000))
    clock.advance(TTL)
    assert scanners.drop_expired() == 0
    clock.advance(1)
    assert scanners.drop_expired() == 1
    assert scan.closed == 1


def test_one_check_ends_all_whose_time_is_over(scanners: KvScannerManager, clock: VirtualClock) -> None:  # K10, K17
    idle, finished = [CountingScan(), CountingScan()], [CountingScan(), CountingScan()]
    for scan in finished:
        go_on(scanners, scanning(scanners, scan), 1, 2)
    for scan, bucket in zip(idle, (B0, B1), strict=True):
        scanning(scanners, scan, bucket)
    clock.advance(max(TTL, KEPT) + 1)
    assert scanners.drop_expired() == 2
    assert [scan.closed for scan in idle + finished] == [1, 1, 1, 1]
    assert scanners.open_count == 0


# Opening


def test_opening_asks_the_storage_and_reads_the_first_rows(scanners: KvScannerManager) -> None:  # K5, K9
    storage = Storage(CountingScan())
    step = opened(scanners, storage, 3)
    assert storage.buckets == [B0]
    answer = read_rows(scanners, step, 1000)
    assert (answer.log_offset, answer.has_more) == (77, False)
    assert pa.ipc.open_stream(answer.arrow_ipc).read_all().num_rows == 3


@pytest.mark.parametrize("admits", [False, True])
def test_a_bucket_without_rows_takes_no_slot_also_if_the_storage_notices_late(  # K4
    scanners: KvScannerManager, admits: bool
) -> None:
    assert open_scanner(scanners, Storage(None, admits=admits), B0, None, "me") == (77, None)  # type: ignore[arg-type]
    assert scanners.open_count == 0


def test_an_error_while_opening_leaves_no_slot_taken(scanners: KvScannerManager) -> None:  # K2, K17
    storage = Storage(CountingScan())

    def fail() -> None:
        assert scanners.open_count == 1
        raise FlussTieringError(ErrorCode.STORAGE, "no space left")

    storage.while_opening = fail
    assert refusal(lambda: opened(scanners, storage)).code is ErrorCode.STORAGE
    assert scanners.open_count == 0


def test_a_bucket_that_is_lost_while_it_is_opened_leaves_no_scan(scanners: KvScannerManager) -> None:  # K12, K17
    scan = CountingScan()
    storage = Storage(scan)
    storage.while_opening = lambda: storage.on_lost()  # noqa: PLW0108 - it is set when the scan is opened
    assert refusal(lambda: opened(scanners, storage)).code is ErrorCode.SCANNER_EXPIRED
    assert (scan.closed, scanners.open_count) == (1, 0)


def test_a_bucket_that_is_lost_later_ends_its_scanner_and_no_other(scanners: KvScannerManager) -> None:  # K12
    storage, other = Storage(CountingScan()), Storage(CountingScan())
    lost, kept = (opened(scanners, each).scanner.scanner_id for each in (storage, other))
    storage.on_lost()
    assert scanners.open_count == 1
    assert refusal(lambda: scanners.begin(lost, 0, "me")).code is ErrorCode.SCANNER_EXPIRED
    assert refusal(lambda: scanners.begin(kept, 0, "me")).code is ErrorCode.INVALID_SCAN_REQUEST, "its first read runs"


def test_a_scanner_that_is_opened_counts_for_its_bucket(scanners: KvScannerManager) -> None:  # K2
    for _ in range(2):
        opened(scanners, Storage(CountingScan()))
    assert refusal(lambda: opened(scanners, Storage(CountingScan()))).message.startswith(f"{B0} has 2 open scanners")
    scanners.reserve(B1, "me")
