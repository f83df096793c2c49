"""Writes to buckets whose storage is hard-pressed, and to a table whose number of buckets changes meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from fluss_peers import Line, peer
from fluss_tables import COLUMNS, descriptor, rows
from refusals import refused

from fluss_tiering.api.fluss.v1.log_pb2 import PbPutKvRespForBucket, PutKvRequest, PutKvResponse
from fluss_tiering.api.fluss.v1.tables_pb2 import MetadataRequest, MetadataResponse
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.table import TableBucket, TableDescriptor, TableInfo, TablePath, WriteKind
from fluss_tiering.storage.fluss import writer
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey
from fluss_tiering.storage.fluss.rpc.client import FlussClient, ParallelCalls
from fluss_tiering.storage.fluss.rpc.errors import FlussError, FlussServerError
from fluss_tiering.storage.fluss.writer import Backpressure, ClusterWriter

BUCKET = TableBucket(3, 0)
OTHER = TableBucket(3, 1)
TABLE = TableInfo(
    3,
    TablePath("db", "t"),
    1,
    TableDescriptor(COLUMNS, ("id",), ("id",), 1, {"table.datalake.format": "iceberg"}),
    created_time=0,
)


class VirtualTime(threading.Event):
    """Pauses that take no time, and a clock that they move."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000.0
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.pauses.append(round(timeout, 6))
        self.now += timeout
        return self.is_set()


@pytest.fixture
def time() -> VirtualTime:
    return VirtualTime()


def pressed(pressure: float | None) -> PbPutKvRespForBucket:
    return PbPutKvRespForBucket(bucket_id=0, log_end_offset=7, pressure=pressure)


REFUSED = PbPutKvRespForBucket(bucket_id=0, error_code=72, error_message="too many files on level 0", pressure=1.0)


@contextmanager
def leader(answers: Sequence[PbPutKvRespForBucket], *, highest: int = 2) -> Iterator[tuple[FlussClient, list[int]]]:
    """A server that leads the bucket and gives these answers, the last one again and again; the versions it saw."""
    left = list(answers)
    versions: list[int] = []

    def script(line: Line) -> None:
        line.greet(highest={ApiKey.GET_METADATA: 0, ApiKey.PUT_KV: highest})
        while True:
            api, version, request_id, message = line.request()
            if api == ApiKey.GET_METADATA:
                MetadataRequest.FromString(message)
                line.answer(request_id, metadata(line.socket.getsockname()[1]))
                continue
            assert api == ApiKey.PUT_KV
            (for_bucket,) = PutKvRequest.FromString(message).buckets_req
            assert for_bucket.bucket_id == 0
            versions.append(version)
            line.answer(request_id, PutKvResponse(buckets_resp=[left.pop(0) if len(left) > 1 else left[0]]))

    with peer(script) as address, FlussClient(str(address), timeout=10) as client:
        yield client, versions


def metadata(port: int) -> MetadataResponse:
    answer = MetadataResponse()
    answer.tablet_servers.add(node_id=1, host="127.0.0.1", port=port)
    table = answer.table_metadata.add(table_id=TABLE.table_id)
    table.table_path.database_name, table.table_path.table_name = "db", "t"
    table.bucket_metadata.add(bucket_id=0, leader_id=1)
    return answer


def put(client: FlussClient, time: VirtualTime, batch: pa.RecordBatch) -> dict[TableBucket, int]:
    calls = ParallelCalls()
    try:
        backpressure = Backpressure(monotonic=time.monotonic, closed=time)
        written = ClusterWriter(client, calls, backpressure=backpressure)
        return dict(written.write(TABLE, WriteKind.UPSERT, pa.Table.from_batches([batch])))
    finally:
        calls.close()


def test_a_write_waits_as_long_as_the_pressure_says(time: VirtualTime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "_KV_BATCH_ROWS", 1)
    answers = [pressed(each) for each in (0.5, None, 0.1, 0.0, 0.9, 1.0, 2.0)]
    with leader([*answers, pressed(None)]) as (client, versions):
        assert put(client, time, rows(0, 9)) == {BUCKET: 7}
    # The longest pause times the square of the pressure, which is a float of 32 bits.
    assert time.pauses == pytest.approx([0.75, 0.03, 2.43, 3.0, 3.0])
    assert versions == [2] * 9


def test_a_write_that_is_refused_is_sent_again(time: VirtualTime) -> None:
    with leader([REFUSED, REFUSED, pressed(0.5)]) as (client, versions):
        assert put(client, time, rows(0, 1)) == {BUCKET: 7}
    assert time.pauses == [3.0, 3.0]
    assert len(versions) == 3


def test_a_write_that_is_refused_for_long_fails(time: VirtualTime) -> None:
    with (
        leader([REFUSED]) as (client, versions),
        refused(ErrorCode.UNAVAILABLE, "STORAGE_BACKPRESSURE_EXCEPTION", "too many files", str(BUCKET), "write less"),
    ):
        put(client, time, rows(0, 1))
    assert time.pauses == [3.0] * 7
    assert len(versions) == 8


def test_a_server_without_backpressure_is_asked_in_its_version(time: VirtualTime) -> None:
    storage_failed = PbPutKvRespForBucket(bucket_id=0, error_code=11, error_message="too many files on level 0")
    with leader([pressed(None), storage_failed], highest=1) as (client, versions):
        assert put(client, time, rows(0, 1)) == {BUCKET: 7}
        # It says KV_STORAGE_EXCEPTION instead, which may be anything.
        with refused(ErrorCode.STORAGE, "KV_STORAGE_EXCEPTION"):
            put(client, time, rows(0, 1))
    assert (time.pauses, versions) == ([], [1, 1])


def test_only_the_bucket_that_is_hard_pressed_waits(time: VirtualTime) -> None:
    backpressure = Backpressure(monotonic=time.monotonic, closed=time)
    backpressure.report(BUCKET, 0.5)
    assert backpressure.write(OTHER, lambda: "other") == "other"
    assert time.pauses == []
    time.now += 0.5
    assert backpressure.write(BUCKET, lambda: "later") == "later"
    assert backpressure.write(BUCKET, lambda: "again") == "again"
    assert time.pauses == [0.25]
    backpressure.report(BUCKET, 0.5)
    time.now += 60
    assert backpressure.write(BUCKET, lambda: "much later") == "much later"
    assert time.pauses == [0.25]
    backpressure.report(BUCKET, 0.5)
    backpressure.report(BUCKET, 0.0)
    assert backpressure.write(BUCKET, lambda: "relieved") == "relieved"
    assert time.pauses == [0.25]


def test_other_errors_are_not_waited_for(time: VirtualTime) -> None:
    backpressure = Backpressure(monotonic=time.monotonic, closed=time)

    def fail() -> None:
        raise FlussServerError(FlussError.KV_STORAGE_EXCEPTION, "broken")

    with pytest.raises(FlussServerError, match="broken"):
        backpressure.write(BUCKET, fail)
    assert time.pauses == []


def test_a_writer_that_is_closed_does_not_wait() -> None:
    backpressure = Backpressure()
    backpressure.report(BUCKET, 1.0)
    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(backpressure.write, BUCKET, lambda: None)
        backpressure.close()
        with refused(ErrorCode.UNAVAILABLE, "closed", str(BUCKET)):
            writing.result(20)


class Client:
    """A cluster with rows in all buckets but one, which does something else before it answers a write."""

    def __init__(self) -> None:
        self.meanwhile: Callable[[], object] = lambda: None

    def call(self, call: Any, **_: Any) -> int:
        if call.api is ApiKey.PRODUCE_LOG:
            self.meanwhile()
            return 0
        return 0 if list(call.request.bucket_id) == [3] else 1000


def test_a_write_by_an_older_number_of_buckets_fails_no_other() -> None:
    table = TableInfo(1, TablePath("shop", "orders"), 1, descriptor(num_buckets=4), 0)
    rows = pa.Table.from_pylist([{"id": number, "name": "n"} for number in range(8)], schema=arrow_schema(COLUMNS))
    client, calls = Client(), ParallelCalls()
    shared: Any = client
    writer = ClusterWriter(shared, calls)

    def once() -> None:
        # Another write, which knows the table as it was, has asked for the ends of its logs.
        client.meanwhile = lambda: None
        writer._log_ends[1, None] = [0, 0]

    client.meanwhile = once
    assert writer.write(table, WriteKind.APPEND, rows) == {TableBucket(1, 3): 8}
    calls.close()
