"""Scans through the client against a real server, answers that do not arrive, and the log behind a scan."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest
from refusals import refused

from engine_support import SCHEMA, ServerProcess, ServerThread, VirtualClock, new_path, new_table, put, refusal
from fluss_tiering.api.v1 import kv_scan_pb2 as pb
from fluss_tiering.api.v1.kv_scan_pb2_grpc import KvScanStub
from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket, TableInfo, TablePath
from fluss_tiering.storage.remote import RemoteSplitReader
from scan_handover import check_handover
from waiting import wait_until


class LostAnswer(grpc.RpcError):
    """The error of a call whose connection broke after the server had done its work."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return "connection reset"

    def trailing_metadata(self) -> None:
        return None


class LosingStub:
    """The real service, except that answers are lost if `lose` says so. It is given the requests so far."""

    def __init__(self, stub: KvScanStub, lose: Callable[[Sequence[pb.ScanKvRequest]], bool]) -> None:
        self.asked: list[pb.ScanKvRequest] = []
        self.ScanKv = self
        self._stub = stub
        self._lose = lose

    def future(self, request: pb.ScanKvRequest, timeout: float) -> Any:
        self.asked.append(request)
        call = self._stub.ScanKv.future(request, timeout=timeout)
        if self._lose(self.asked):
            call.result()
            call.result = lost
        return call


def lost() -> None:
    raise LostAnswer


def losing(client: TieringClient, lose: Callable[[Sequence[pb.ScanKvRequest]], bool]) -> LosingStub:
    client._stubs.kv_scan = LosingStub(client._stubs.kv_scan, lose)
    return client._stubs.kv_scan


def ids(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return sorted(each for batch in batches for each in batch["id"].to_pylist())


def open_scanners(client: TieringClient, table: TableInfo) -> int:
    """Return how many scanners of bucket 0 are open, found by opening as many others as possible."""
    request = pb.ScanKvRequest(bucket_scan_req={"table_id": table.table_id}, batch_size_bytes=1)
    calls = [client._stubs.kv_scan.ScanKv.future(request, timeout=20) for _ in range(9)]
    codes = [call.code() for call in calls]
    opened = [call.result().scanner_id for call in calls if call.code() is grpc.StatusCode.OK]
    assert len(opened) + codes.count(grpc.StatusCode.RESOURCE_EXHAUSTED) == 9
    for scanner_id in opened:
        client._stubs.kv_scan.ScanKv(pb.ScanKvRequest(scanner_id=scanner_id, close_scanner=True), timeout=20)
    return 8 - len(opened)


def test_all_rows_come_once_with_where_the_log_goes_on(client: TieringClient) -> None:  # K5
    table = new_table(client, range(5000), num_buckets=6)
    put(client, table, {1: "changed"})
    with client.scan(table.path, batch_size_bytes=4096) as scan:
        batches = list(scan)
        offsets = scan.log_offsets
    assert {batch.schema for batch in batches} == {scan.schema} == {SCHEMA}
    names = {row["id"]: row["name"] for batch in batches for row in batch.to_pylist()}
    assert sum(batch.num_rows for batch in batches) == 5000
    assert names == {each: f"name {each}" for each in range(5000)} | {1: "changed"}
    assert offsets == {info.bucket: info.log_end_offset for info in client.list_buckets([table.path])[table.path]}


def test_offsets_are_told_at_the_end_only(client: TieringClient) -> None:  # K5
    table = new_table(client, range(100), num_buckets=3)
    with client.scan(table, batch_size_bytes=100) as scan:
        next(scan)
        with pytest.raises(RuntimeError, match="not come to the end"):
            _ = scan.log_offsets


def test_chosen_buckets_only(client: TieringClient) -> None:
    table = new_table(client, range(300), num_buckets=3)
    chosen = TableBucket(table.table_id, 2)
    with client.scan(table, buckets=[chosen]) as scan:
        found = ids(scan)
        assert set(scan.log_offsets) == {chosen}
    assert 0 < len(found) < 300
    other = client.scan(table, buckets=[TableBucket(table.table_id, 0), TableBucket(table.table_id, 1)])
    assert sorted(found + ids(other)) == list(range(300))


def test_buckets_of_another_table_are_refused(client: TieringClient) -> None:
    table, other = new_table(client, range(10)), new_table(client, range(100, 110))
    buckets = [TableBucket(table.table_id, 0), TableBucket(other.table_id, 0)]
    for named in (table, table.path, str(table.path)):
        told = f"{table.path}, which has the table id {table.table_id}, with bucket 0 of table {other.table_id}"
        with refused(ErrorCode.INVALID_REQUEST, told):
            client.scan(named, buckets=buckets)


@pytest.mark.parametrize("columns", [["name"], ["name", "id"], []])
def test_chosen_columns_only(client: TieringClient, columns: list[str]) -> None:
    table = new_table(client, range(300), num_buckets=3)
    with client.scan(table, columns=columns, batch_size_bytes=1000) as scan:
        found = pa.Table.from_batches(scan, scan.schema)
    assert found.schema.names == columns
    assert found.num_rows == 300
    if columns:
        assert sorted(found["name"].to_pylist()) == sorted(f"name {number}" for number in range(300))
    assert sum(batch.num_rows for batch in client.scan(table, columns=columns, limit=10)) == 10


@pytest.mark.parametrize(("columns", "words"), [(["nmae"], "no column 'nmae'"), (["id", "id"], "twice")])
def test_columns_that_are_not_there_are_refused(client: TieringClient, columns: list[str], words: str) -> None:
    table = new_table(client)
    with refused(ErrorCode.INVALID_REQUEST, words):
        client.scan(table, columns=columns)


def test_a_table_without_rows(client: TieringClient) -> None:  # K4
    table = new_table(client, num_buckets=2)
    with client.scan(table) as scan:
        assert list(scan) == []
        assert set(scan.log_offsets.values()) == {0}


def test_a_limit_is_of_the_whole_table(client: TieringClient) -> None:  # K9, D17
    table = new_table(client, range(300), num_buckets=3)
    # In 4 MiB each bucket gives all of its rows at once, and the limit of 150 ends in those of the second one.
    for limit, size in ((1, 200), (10, 200), (299, 200), (300, 200), (5000, 200), (150, 4 << 20)):
        found = ids(client.scan(table, limit=limit, batch_size_bytes=size))
        assert len(set(found)) == len(found) == min(limit, 300), limit


def test_what_cannot_be_scanned_is_named(client: TieringClient) -> None:  # K3
    wrong = ({"limit": 0}, {"limit": -1}, {"limit": 2**63}, {"batch_size_bytes": 0}, {"batch_size_bytes": 2**31})
    for fields in wrong:
        with refused(ErrorCode.INVALID_REQUEST, "expected a number from 1 to"):
            client.scan(new_path(), **fields)
    assert refusal(lambda: client.scan(TablePath("db", "unknown"))).code is ErrorCode.TABLE_NOT_EXIST
    log = new_table(client, [1], primary_key=False)
    with refused(ErrorCode.TABLE_WITHOUT_PRIMARY_KEY, str(log.path)):
        list(client.scan(log))


def test_early_ends_close_the_scanners(client: TieringClient) -> None:  # K13, K17
    table = new_table(client, range(1000))
    for _ in client.scan(table, batch_size_bytes=100):
        break
    assert open_scanners(client, table) == 0
    with client.scan(table, batch_size_bytes=100) as scan:
        next(scan)
    assert open_scanners(client, table) == 0
    ended = client.scan(table, batch_size_bytes=100)
    next(ended)
    ended.close()
    ended.close()
    assert list(ended) == []
    assert open_scanners(client, table) == 0
    list(client.scan(table, limit=3))
    assert open_scanners(client, table) == 0


def test_a_scan_that_outlives_its_client_says_so(server: ServerProcess, client: TieringClient, capfd) -> None:
    table = new_table(client, range(1000))
    with TieringClient(server.target, timeout=2) as short:
        scan = short.scan(table, batch_size_bytes=100)
        next(scan)
    with pytest.raises((FlussTieringError, ValueError)):
        list(scan)
    del scan
    gc.collect()
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("every", [1, 2, 3])
def test_lost_answers_are_asked_for_again(client: TieringClient, every: int) -> None:  # K15
    table = new_table(client, range(500), num_buckets=2)
    put(client, table, {1: "changed"})

    def first_of_some(asked: Sequence[pb.ScanKvRequest]) -> bool:
        *before, last = asked
        return last.HasField("scanner_id") and last.call_seq_id % every == 0 and last not in before

    stub = losing(client, first_of_some)
    with client.scan(table, batch_size_bytes=1500) as scan:
        assert ids(scan) == list(range(500))
        assert sum(scan.log_offsets.values()) == 502
    assert any(stub.asked.count(request) > 1 for request in stub.asked), "no answer was lost"


def test_the_very_last_answer_may_be_lost(client: TieringClient) -> None:  # K15
    table = new_table(client, range(100))
    with client.scan(table, batch_size_bytes=1500) as scan:
        calls = sum(1 for _ in scan)
    stub = losing(client, lambda asked: len(asked) == calls)
    assert ids(client.scan(table, batch_size_bytes=1500)) == list(range(100))
    assert len(stub.asked) == calls + 1


def test_a_call_that_is_repeated_too_soon_is_repeated_later(client: TieringClient) -> None:  # K14, K15
    class Impatient(LosingStub):
        """A service that sends each continuation twice at once, as a channel does after its connection broke."""

        def future(self, request: pb.ScanKvRequest, timeout: float) -> Any:
            self.asked.append(request)
            if request.HasField("scanner_id") and not request.close_scanner:
                self._stub.ScanKv.future(request, timeout=timeout)
            return self._stub.ScanKv.future(request, timeout=timeout)

    table = new_table(client, range(3000))
    client._stubs.kv_scan = Impatient(client._stubs.kv_scan, lambda _: False)
    assert ids(client.scan(table, batch_size_bytes=20_000)) == list(range(3000))


def test_answers_that_stay_lost_end_the_scan_with_the_reason(client: TieringClient) -> None:  # K15
    table = new_table(client, range(100))
    stub = losing(client, lambda asked: len(asked) > 1)
    with refused(ErrorCode.UNAVAILABLE, str(table.path)):
        list(client.scan(table, batch_size_bytes=100))
    assert len([each for each in stub.asked if each.call_seq_id == 1]) == 4


def test_a_client_asks_for_4_mib_unless_it_is_told_otherwise(client: TieringClient) -> None:  # K1, D17
    table = new_table(client, range(10))
    stub = losing(client, lambda _: False)
    assert ids(client.scan(table)) == ids(client.scan(table, batch_size_bytes=64)) == list(range(10))
    sizes = [each.batch_size_bytes for each in stub.asked]
    assert sizes[0] == 4 << 20
    assert set(sizes[1:]) == {64}
    assert len(sizes) > 2


def test_opening_waits_for_a_free_slot(server: ServerProcess, client: TieringClient) -> None:  # K2
    table = new_table(client, range(100))
    held = [client.scan(table, batch_size_bytes=10) for _ in range(8)]
    for scan in held:
        next(scan)
    with TieringClient(server.target, timeout=0.5) as hasty:
        assert refusal(lambda: list(hasty.scan(table))).code is ErrorCode.TOO_MANY_SCANNERS
    freed = threading.Timer(0.5, held[0].close)
    freed.start()
    assert ids(client.scan(table)) == list(range(100))
    freed.join()
    for scan in held:
        scan.close()


@pytest.mark.slow
@pytest.mark.parametrize("end", ["drop", "expiry", "restart"])
def test_a_scan_that_cannot_go_on_says_so(tmp_path: Path, end: str) -> None:  # K10, K12
    clock = VirtualClock()
    settings = {"clock": clock, "kv_scanner_expiration_interval": 20}
    with ServerThread(tmp_path, **settings) as server, TieringClient(server.target, timeout=30) as client:
        table = new_table(client, range(1000))
        scan = client.scan(table, batch_size_bytes=100)
        next(scan)
        match end:
            case "drop":
                client.drop_table(table.path, drop_untiered=True)
            case "expiry":
                time.sleep(0.2)  # The answer that is read ahead keeps the scanner alive.

                def expired() -> bool:
                    clock.advance(600_001)
                    return not open_scanners(client, table)

                wait_until(expired)
            case "restart":
                server.run(server.server.stop())
                server.run(server.server.start())
                scan._buckets[0]._scan_kv = TieringClient(server.target)._stubs.kv_scan.ScanKv
        error = refusal(lambda: list(scan))
    assert error.code in {ErrorCode.SCANNER_EXPIRED, ErrorCode.UNKNOWN_SCANNER_ID}
    assert "start the scan again" in error.message
    assert str(table.path) in error.message


ROUNDS = 10
LONG_ROUNDS = 200


@pytest.fixture
def writers_client(server: ServerProcess) -> Iterator[TieringClient]:
    with TieringClient(server.target) as connected:
        yield connected


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [ROUNDS, pytest.param(LONG_ROUNDS, marks=pytest.mark.long)])
def test_a_scan_and_the_log_behind_it_are_the_table(  # K5
    client: TieringClient, writers_client: TieringClient, rounds: int
) -> None:
    check_handover(client, writers_client, RemoteSplitReader(client), new_table(client, num_buckets=4), rounds)
