"""Scans over gRPC on the embedded storage: what they hold, and what is left of them. Their rules: `scan_rules.py`."""

from __future__ import annotations

import gc
import random
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import grpc
import pyarrow as pa
import pytest

from engine_support import SCHEMA, ServerThread, VirtualClock, descriptor, new_path, new_table
from fluss_tiering.api.v1 import kv_scan_pb2 as pb
from fluss_tiering.api.v1.kv_scan_pb2_grpc import KvScanStub
from fluss_tiering.client import TieringClient
from fluss_tiering.formats.compacted.row import decode_values
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo, WriteKind
from fluss_tiering.server import app, components
from fluss_tiering.server.core.scans.manager import KvScannerManager
from fluss_tiering.server.services.kv_scan import KvScanServicer
from fluss_tiering.storage.embedded.kv_scan import EmbeddedKvScan
from fluss_tiering.wire.errors import code_from_metadata
from waiting import wait_until

TTL = 600_000
SIZE = 1 << 20
COLUMNS = descriptor().columns


class Server(ServerThread):
    """A server whose scanners the tests can reach, and that looks for idle scanners all the time."""

    def __init__(self, data_dir: Path) -> None:
        self.clock = VirtualClock()
        super().__init__(data_dir, clock=self.clock, kv_scanner_expiration_interval=20)
        self.scanners: list[KvScannerManager] = []
        self.leads = True

    def __enter__(self) -> Self:
        def made(*arguments: object) -> KvScannerManager:
            self.scanners.append(KvScannerManager(*arguments))
            return self.scanners[-1]

        def opened(*arguments: Any, **options: Any) -> object:
            return components.open_components(*arguments, **{**options, "check": self.check})

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(components, "KvScannerManager", made)
            patch.setattr(app, "open_components", opened)
            super().__enter__()
        return self

    def check(self) -> None:
        if not self.leads:
            raise FlussTieringError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another server took over")

    @property
    def open_count(self) -> int:
        return self.scanners[-1].open_count


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("scans")) as server:
        yield server


@pytest.fixture
def server(running: Server) -> Iterator[Server]:
    yield running
    settled(running, 0)


@pytest.fixture
def client(server: Server) -> Iterator[TieringClient]:
    with TieringClient(server.target) as connected:
        yield connected


@pytest.fixture
def stub(server: Server) -> Iterator[KvScanStub]:
    with grpc.insecure_channel(server.target, [("grpc.max_receive_message_length", 64 << 20)]) as channel:
        yield KvScanStub(channel)


def settled(server: Server, scanners: int) -> None:
    """Wait until so many scanners hold a slot, and the storage keeps a view for each of them and no other."""

    def counts() -> tuple[int, int]:
        return server.open_count, views()

    def holds() -> bool:
        if counts() == (scanners, scanners):
            return True
        # The last answers of finished scans are kept for a minute; the jobs let them go at their next turn.
        server.clock.advance(60_001)
        return False

    wait_until(holds, describe=counts)


def views() -> int:
    """Return the number of live views of RocksDB in this process."""
    return sum(type(each) is EmbeddedKvScan and each._view is not None for each in gc.get_objects())


def request(table: TableInfo, bucket: int = 0, **fields: object) -> pb.ScanKvRequest:
    limit = fields.pop("limit", None)
    return pb.ScanKvRequest(
        bucket_scan_req=pb.PbScanReqForBucket(table_id=table.table_id, bucket_id=bucket, limit=limit),
        **{"batch_size_bytes": SIZE, **fields},
    )


def refusal(call: Callable[[], object]) -> ErrorCode | None:
    with pytest.raises(grpc.RpcError) as failed:
        call()
    assert "Traceback" not in failed.value.details()
    return code_from_metadata(failed.value.trailing_metadata())


def ids_of(response: pb.ScanKvResponse) -> list[int]:
    values = pa.ipc.open_stream(response.records).read_all()["value"].combine_chunks()
    return decode_values(values, COLUMNS, 1)["id"].to_pylist()


def close(stub: KvScanStub, scanner_id: bytes) -> None:
    stub.ScanKv(pb.ScanKvRequest(scanner_id=scanner_id, close_scanner=True), timeout=20)


def test_an_empty_bucket_takes_no_slot_even_when_none_is_free(client: TieringClient, stub: KvScanStub) -> None:  # K4
    table = new_table(client, range(40), num_buckets=1)
    held = [stub.ScanKv(request(table, batch_size_bytes=1), timeout=20) for _ in range(8)]
    assert refusal(lambda: stub.ScanKv(request(table), timeout=20)) is ErrorCode.TOO_MANY_SCANNERS  # K2
    rows = pa.table({"id": list(range(40))}, schema=pa.schema([SCHEMA.field("id")]))
    list(client.write_rows(table.path, WriteKind.DELETE, [rows]))
    empty = stub.ScanKv(request(table), timeout=20)
    assert (empty.has_more_results, empty.log_offset, empty.records) == (False, 80, b"")
    assert not empty.HasField("scanner_id")
    for answer in held:
        close(stub, answer.scanner_id)
    never = stub.ScanKv(request(new_table(client)), timeout=20)
    assert (never.has_more_results, never.HasField("log_offset"), never.log_offset) == (False, True, 0)


def test_an_open_scanner_holds_no_rows(client: TieringClient, stub: KvScanStub, server: Server) -> None:
    table = client.create_table(new_path(), descriptor(num_buckets=5))
    rows = pa.table({"id": range(2000), "name": ["x" * 1000] * 2000}, schema=SCHEMA)
    assert sum(client.write_rows(table.path, WriteKind.UPSERT, [rows])) == 2000
    opened = [stub.ScanKv(request(table, batch_size_bytes=200_000), timeout=20).scanner_id]
    tracemalloc.start()
    try:
        in_arrow = pa.total_allocated_bytes()
        before = tracemalloc.get_traced_memory()[0]
        for number in range(1, 40):
            opened.append(stub.ScanKv(request(table, number % 5, batch_size_bytes=200_000), timeout=20).scanner_id)
        gc.collect()
        # Each has given out 200 kB, and keeps where it stands.
        assert tracemalloc.get_traced_memory()[0] - before < 39 * 20_000
        assert pa.total_allocated_bytes() - in_arrow < 100_000
    finally:
        tracemalloc.stop()
    for scanner_id in opened:
        close(stub, scanner_id)


# K12


@pytest.mark.slow
def test_who_leads_no_longer_closes_scanners_but_serves_none(  # K3, K12, K13
    client: TieringClient, stub: KvScanStub, server: Server
) -> None:
    table = new_table(client, range(10))
    answer = stub.ScanKv(request(table, batch_size_bytes=1), timeout=20)
    server.leads = False
    try:
        call = pb.ScanKvRequest(scanner_id=answer.scanner_id, call_seq_id=1, batch_size_bytes=1)
        assert refusal(lambda: stub.ScanKv(call, timeout=20)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert refusal(lambda: stub.ScanKv(request(table), timeout=20)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        # Whoever has the scan's iterator hears which table it was, and to try again.
        with pytest.raises(FlussTieringError, match=f"{table.path} .*another server took over") as ended:
            list(client.scan(table))
        assert ended.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        close(stub, b"nobody")
        assert views() == 1
        close(stub, answer.scanner_id)
        assert (server.open_count, views()) == (0, 0)
    finally:
        server.leads = True


# K17
@pytest.mark.slow
def test_an_open_whose_client_went_away_leaves_nothing(client: TieringClient, server: Server, running: Server) -> None:
    table = new_table(client, range(200), num_buckets=2)
    chance = random.Random(5)
    for _ in range(40):
        # A channel's end is a client's end: the server sees its calls cancelled.
        with grpc.insecure_channel(server.target, options=(("grpc.use_local_subchannel_pool", 1),)) as channel:
            calls = [
                KvScanStub(channel).ScanKv.future(request(table, each % 2, batch_size_bytes=1), timeout=20)
                for each in range(20)
            ]
            if chance.random() < 0.5:
                threading.Event().wait(chance.random() * 0.02)
            for call in calls:
                call.cancel()
    # What a client had heard of before it went away lives on until its time is up.
    server.clock.advance(TTL + 1)
    settled(server, 0)


def test_an_open_that_is_cancelled_while_it_waits_leaves_nothing_for_its_time_to_end(  # K17, D17
    client: TieringClient, stub: KvScanStub, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(client, range(100))
    reading, go_on = threading.Event(), threading.Event()
    read, end = EmbeddedKvScan.read, EmbeddedKvScan.close
    ended_in: list[str] = []

    def read_late(self: EmbeddedKvScan, *arguments: Any) -> object:
        reading.set()
        assert go_on.wait(30)
        return read(self, *arguments)

    def close_noted(self: EmbeddedKvScan) -> None:
        ended_in.append(threading.current_thread().name)
        end(self)

    monkeypatch.setattr(EmbeddedKvScan, "read", read_late)
    monkeypatch.setattr(EmbeddedKvScan, "close", close_noted)
    left, close_unheard = threading.Event(), KvScanServicer._close_unheard

    async def close_unheard_noted(*arguments: Any) -> None:
        left.set()
        await close_unheard(*arguments)

    monkeypatch.setattr(KvScanServicer, "_close_unheard", close_unheard_noted)
    call = stub.ScanKv.future(request(table, batch_size_bytes=1), timeout=30)
    assert reading.wait(30)
    assert call.cancel()
    # Without this the answer may be on its way before the server hears that the client has left.
    assert left.wait(30)
    go_on.set()
    wait_until(lambda: (server.open_count, views()) == (0, 0))
    # The scan of a cluster tells the leader of its end, for which no other call may wait.
    assert [name.partition("_")[0] for name in ended_in] == ["storage"]


def test_a_restart_ends_all_and_leaves_nothing_open(tmp_path: Path) -> None:  # K12, K17
    with Server(tmp_path) as first, TieringClient(first.target) as client:
        table = new_table(client, range(100))
        with grpc.insecure_channel(first.target) as channel:
            answer = KvScanStub(channel).ScanKv(request(table, batch_size_bytes=10), timeout=20)
        assert views() == 1
    assert (views(), first.open_count) == (0, 0)
    # The store is opened again, which a view that was left would not let it be.
    with Server(tmp_path) as second, grpc.insecure_channel(second.target) as channel:
        stub = KvScanStub(channel)
        call = pb.ScanKvRequest(scanner_id=answer.scanner_id, call_seq_id=1, batch_size_bytes=10)
        assert refusal(lambda: stub.ScanKv(call, timeout=20)) is ErrorCode.UNKNOWN_SCANNER_ID
        close(stub, answer.scanner_id)
        assert sorted(ids_of(stub.ScanKv(request(table), timeout=20))) == list(range(100))
