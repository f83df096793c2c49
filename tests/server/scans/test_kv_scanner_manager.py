"""The scanners' state machine on a clock to turn by hand, over scans that only count."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from refusals import refused
from scan_support import CountingScan

from engine_support import VirtualClock, refusal
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket
from fluss_tiering.server.core.scans.manager import KvScannerManager
from fluss_tiering.server.core.scans.scanner import ScannerLimits
from fluss_tiering.server.services.kv_scan import read_rows
from fluss_tiering.server.settings.server_settings import ServerSettings, load_settings, settings_from_keys
from fluss_tiering.wire.kv_scan import ScannedRows

TTL = 600_000
BUCKET = TableBucket(1, 0)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def scanners(clock: VirtualClock) -> KvScannerManager:
    return KvScannerManager(clock, ScannerLimits(TTL, max_per_bucket=8, max_per_server=200, max_batch_size=10 << 20))


def opened(scanners: KvScannerManager, scan: CountingScan, limit: int | None = None) -> tuple[bytes, ScannedRows]:
    scanner_id = scanners.reserve(BUCKET, "me")
    return scanner_id, read_rows(scanners, scanners.opened(scanner_id, scan, limit), 1000)


def go_on(scanners: KvScannerManager, scanner_id: bytes, call_seq_id: int, size: int = 1000) -> ScannedRows:
    return read_rows(scanners, scanners.begin(scanner_id, call_seq_id, "me"), size)


def rows_of(answer: ScannedRows) -> list[int]:
    return [int(value) for value in pa.ipc.open_stream(answer.arrow_ipc).read_all()["value"].to_pylist()]


def test_the_defaults_are_those_of_fluss(tmp_path) -> None:  # K1
    limits = ScannerLimits.of(ServerSettings(data_dir=tmp_path))
    assert limits == ScannerLimits(600_000, max_per_bucket=8, max_per_server=200, max_batch_size=10 << 20)
    assert ServerSettings(data_dir=tmp_path).kv_scanner_expiration_interval_ms == 30_000


def test_they_are_set_by_flusss_keys(tmp_path) -> None:  # K1
    given = ["kv.scanner.ttl=5 min", "kv.scanner.max-batch-size=4mb", "kv.scanner.max-per-bucket=3"]
    limits = ScannerLimits.of(load_settings(data_dir=tmp_path, **settings_from_keys(given)))
    assert (limits.ttl_ms, limits.max_batch_size, limits.max_per_bucket) == (300_000, 4 << 20, 3)
    for wrong in ("kv_scanner_max_batch_size", "kv_scanner_max_per_server", "kv_scanner_ttl"):
        assert refusal(lambda wrong=wrong: load_settings(**{wrong: "0"})).code is ErrorCode.INVALID_REQUEST


def test_a_scan_goes_through_its_rows_in_sequence(scanners: KvScannerManager) -> None:  # K5, K6
    scan = CountingScan(10)
    scanner_id, first = opened(scanners, scan)
    second = go_on(scanners, scanner_id, 1)
    third = go_on(scanners, scanner_id, 2)
    assert [rows_of(each) for each in (first, second, third)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [each.has_more for each in (first, second, third)] == [True, True, False]
    assert {each.scanner_id for each in (first, second, third)} == {scanner_id}
    assert [each.log_offset for each in (first, second, third)] == [77, None, None]
    assert scanners.open_count == 0


def test_a_number_out_of_sequence_is_refused_and_harms_nothing(scanners: KvScannerManager) -> None:  # K6
    scanner_id, _ = opened(scanners, CountingScan(10))
    for wrong in (-1, 3, 2**31 - 1):
        with pytest.raises(
            FlussTieringError, match=f"is {wrong}: expected 1, or 0 for the last batch again"
        ) as refused:
            scanners.begin(scanner_id, wrong, "me")
        assert refused.value.code is ErrorCode.INVALID_SCAN_REQUEST
    assert rows_of(go_on(scanners, scanner_id, 1)) == [4, 5, 6, 7]
    assert refusal(lambda: scanners.begin(scanner_id, 0, "me")).code is ErrorCode.INVALID_SCAN_REQUEST


def test_the_size_is_the_smaller_of_what_is_asked_and_allowed(scanners: KvScannerManager) -> None:  # K7
    scan = CountingScan(100)
    scanner_id, _ = opened(scanners, scan)
    go_on(scanners, scanner_id, 1, 64 << 20)
    assert scan.sizes == [1000, 10 << 20]


@pytest.mark.parametrize(("limit", "sizes"), [(3, [3]), (4, [4]), (6, [4, 2]), (10, [4, 4, 2]), (99, [4, 4, 2])])
def test_a_limit_ends_the_scan_and_closes_it(scanners: KvScannerManager, limit: int, sizes: list[int]) -> None:  # K9
    scan = CountingScan(10)
    scanner_id, answer = opened(scanners, scan, limit)
    answers = [answer]
    while answers[-1].has_more:
        answers.append(go_on(scanners, scanner_id, len(answers)))
    assert [len(rows_of(each)) for each in answers] == sizes
    assert scanners.open_count == 0
    assert refusal(lambda: scanners.begin(scanner_id, len(answers), "me")).code is ErrorCode.UNKNOWN_SCANNER_ID


def test_the_last_batch_is_given_again(scanners: KvScannerManager) -> None:  # K15
    scan = CountingScan(12)
    scanner_id, first = opened(scanners, scan)
    assert go_on(scanners, scanner_id, 0) == first
    second = go_on(scanners, scanner_id, 1)
    scan.at_once = 6  # As where the client asks for larger batches meanwhile.
    assert go_on(scanners, scanner_id, 1) == second
    assert go_on(scanners, scanner_id, 1, 1) == second
    assert scan.sizes == [1000, None, 1000, None, None], "as many rows again, not as many as fit"
    assert rows_of(go_on(scanners, scanner_id, 2)) == [8, 9, 10, 11]


def test_the_very_last_batch_is_given_again_for_a_minute_and_takes_no_slot(  # K9, K15
    scanners: KvScannerManager, clock: VirtualClock
) -> None:
    scan = CountingScan(6)
    scanner_id, _ = opened(scanners, scan)
    last = go_on(scanners, scanner_id, 1)
    assert (last.has_more, scanners.open_count, scan.closed) == (False, 0, 0)
    clock.advance(60_000)
    scanners.drop_expired()
    assert go_on(scanners, scanner_id, 1) == last
    clock.advance(60_001)
    assert scanners.drop_expired() == 0
    assert scan.closed == 1
    assert refusal(lambda: scanners.begin(scanner_id, 1, "me")).code is ErrorCode.UNKNOWN_SCANNER_ID


def test_finished_scans_that_are_kept_are_bounded(clock: VirtualClock) -> None:  # K15, K17
    scanners = KvScannerManager(clock, ScannerLimits(TTL, max_per_bucket=2, max_per_server=3, max_batch_size=1 << 20))
    scans = [CountingScan(6) for _ in range(10)]
    for scan in scans:
        scanner_id, _ = opened(scanners, scan)
        go_on(scanners, scanner_id, 1)
    assert [scan.closed for scan in scans] == [1] * 7 + [0] * 3


def test_an_idle_scanner_expires_then_is_unknown(scanners: KvScannerManager, clock: VirtualClock) -> None:  # K10
    scan = CountingScan(10)
    scanner_id, _ = opened(scanners, scan)
    clock.advance(TTL)
    assert scanners.drop_expired() == 0
    assert rows_of(go_on(scanners, scanner_id, 1)) == [4, 5, 6, 7]
    clock.advance(TTL + 1)
    assert (scanners.open_count, scanners.drop_expired(), scanners.open_count, scan.closed) == (1, 1, 0, 1)
    clock.advance(2 * TTL)
    scanners.drop_expired()
    assert refusal(lambda: scanners.begin(scanner_id, 2, "me")).code is ErrorCode.SCANNER_EXPIRED
    clock.advance(1)
    assert refusal(lambda: scanners.begin(scanner_id, 2, "me")).code is ErrorCode.UNKNOWN_SCANNER_ID
    scanners.drop_expired()
    assert scanners._expired == {}


def test_a_refused_call_does_not_keep_a_scanner_alive(scanners: KvScannerManager, clock: VirtualClock) -> None:  # K11
    scanner_id, _ = opened(scanners, CountingScan(10))
    clock.advance(TTL)
    assert refusal(lambda: scanners.begin(scanner_id, 7, "me")).code is ErrorCode.INVALID_SCAN_REQUEST
    clock.advance(1)
    assert scanners.drop_expired() == 1


def test_a_scanner_that_is_being_read_is_not_idle(scanners: KvScannerManager, clock: VirtualClock) -> None:  # K10
    scanner_id, _ = opened(scanners, CountingScan(10))
    step = scanners.begin(scanner_id, 1, "me")
    clock.advance(2 * TTL)
    assert scanners.drop_expired() == 0
    read_rows(scanners, step, 1000)
    clock.advance(TTL)
    assert scanners.drop_expired() == 0


# K14, K11
def test_a_second_call_is_refused_and_harms_neither(scanners: KvScannerManager, clock: VirtualClock) -> None:
    scanner_id, _ = opened(scanners, CountingScan(12))
    step = scanners.begin(scanner_id, 1, "me")
    for call_seq_id in (0, 1, 2):
        with refused(ErrorCode.INVALID_SCAN_REQUEST):
            scanners.begin(scanner_id, call_seq_id, "me")
    assert rows_of(read_rows(scanners, step, 1000)) == [4, 5, 6, 7]
    assert rows_of(go_on(scanners, scanner_id, 2)) == [8, 9, 10, 11]


def test_an_error_while_reading_is_told_and_the_call_can_be_repeated(scanners: KvScannerManager) -> None:  # K6, K16
    scan = CountingScan(10)
    scanner_id, _ = opened(scanners, scan)
    scan.broken = True
    assert refusal(lambda: go_on(scanners, scanner_id, 1)).code is ErrorCode.CORRUPT_DATA
    scan.broken = False
    assert rows_of(go_on(scanners, scanner_id, 1)) == [4, 5, 6, 7]


def test_closing_works_for_all_and_spares_the_call_under_way(scanners: KvScannerManager) -> None:  # K13, K14
    scanners.close(b"never heard of", "me")
    scan = CountingScan(10)
    scanner_id, _ = opened(scanners, scan)
    step = scanners.begin(scanner_id, 1, "me")
    scanners.close(scanner_id, "me")
    assert scan.closed == 0
    assert rows_of(read_rows(scanners, step, 1000)) == [4, 5, 6, 7]
    assert (scan.closed, scanners.open_count) == (1, 0)
    scanners.close(scanner_id, "me")
    assert refusal(lambda: scanners.begin(scanner_id, 2, "me")).code is ErrorCode.UNKNOWN_SCANNER_ID


def test_a_lost_bucket_expires_its_scanners(scanners: KvScannerManager) -> None:  # K12
    scanner_id, _ = opened(scanners, CountingScan(10))
    scanners.lost(scanner_id)
    assert refusal(lambda: scanners.begin(scanner_id, 1, "me")).code is ErrorCode.SCANNER_EXPIRED
    opening = scanners.reserve(BUCKET, "me")
    scanners.lost(opening)
    scan = CountingScan()
    assert refusal(lambda: scanners.opened(opening, scan, None)).code is ErrorCode.SCANNER_EXPIRED
    assert (scan.closed, scanners.open_count) == (1, 0)


def test_counts_are_exact_after_a_thousand_concurrent_opens(scanners: KvScannerManager) -> None:  # K2
    start = threading.Barrier(20)

    def open_some(worker: int) -> tuple[list[bytes], int]:
        start.wait(30)
        ids, refused = [], 0
        for number in range(50):
            try:
                ids.append(scanners.reserve(TableBucket(1, (worker + number) % 40), "me"))
            except FlussTieringError:
                refused += 1
        return ids, refused

    with ThreadPoolExecutor(20) as pool:
        results = list(pool.map(open_some, range(20)))
    ids = [scanner_id for found, _ in results for scanner_id in found]
    assert (len(ids), len(ids) + sum(refused for _, refused in results)) == (200, 1000)
    assert scanners.open_count == len(scanners._scanners) == 200
    assert max(scanners._slots._by_bucket.values()) <= 8
    with ThreadPoolExecutor(20) as pool:
        list(pool.map(scanners.abandon, ids))
    assert scanners.open_count == 0
