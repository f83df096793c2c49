"""Measures a scan of a primary-key table over gRPC, the same scan decoded row by row, and the memory of scanners."""

from __future__ import annotations

import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import grpc
import psutil
import pyarrow as pa

from benchmarks import rows
from examples.flights.processes import Processes
from examples.flights.server import start_server
from fluss_tiering.api.v1.kv_scan_pb2_grpc import KvScanStub
from fluss_tiering.client import TieringClient
from fluss_tiering.client.channel import CHANNEL_OPTIONS
from fluss_tiering.client.scan import BucketScanCalls
from fluss_tiering.model.table import Column, DataTypeRoot, TableBucket, TableInfo, TablePath, WriteKind
from fluss_tiering.wire.kv_scan import call_to_pb, rows_from_pb

ROWS: Final = 2_000_000
_PORT: Final = 9164
_BUCKETS: Final = 25
_SCANNERS: Final = 200
"""As many scanners as a server allows: 8 of each bucket."""
_BATCH_BYTES: Final = 4 << 20
_SCANS: Final = 3


@dataclass(frozen=True, slots=True)
class ScanMeasured:
    """The measured values. Bytes are about the server's resident memory."""

    rows: int
    load_seconds: float
    scan_seconds: float
    row_by_row_seconds: float
    scanners: int
    grown_bytes: int


def measure(row_count: int) -> ScanMeasured:
    """Load a table, open as many scanners as a server allows, and scan the table in both ways."""
    path = TablePath("bench", "scanned")
    with _server() as (client, stub, process):
        table = client.create_table(path, rows.descriptor(primary_key=True, num_buckets=_BUCKETS))
        started = time.perf_counter()
        for _ in client.write_rows(path, WriteKind.UPSERT, rows.batches(0, row_count)):
            pass
        loaded = time.perf_counter() - started
        # This comes first, so that memory that the server's first scan leaves behind also counts.
        scanners, grown = _memory_of_scanners(stub, table, process)
        columnar = median(_timed(row_count, lambda: _columnar(client, table)) for _ in range(_SCANS))
        row_by_row = _timed(row_count, lambda: _row_by_row(stub, table))
    return ScanMeasured(row_count, loaded, columnar, row_by_row, scanners, grown)


def _timed(expected: int, scan: Callable[[], int]) -> float:
    started = time.perf_counter()
    _check(expected, scan())
    return time.perf_counter() - started


def _check(expected: int, found: int) -> None:
    if found != expected:
        raise SystemExit(f"error: the scan gave {found} rows, expected {expected}")


def _columnar(client: TieringClient, table: TableInfo) -> int:
    with client.scan(table, batch_size_bytes=_BATCH_BYTES) as scan:
        return sum(batch.num_rows for batch in scan)


def _row_by_row(stub: KvScanStub, table: TableInfo) -> int:
    """Scan with the same calls, one after the other, and make a tuple of Python values of each row."""
    decode = RowDecoder(table.descriptor.columns)
    count = 0
    for bucket in range(_BUCKETS):
        calls = BucketScanCalls(TableBucket(table.table_id, bucket), None, _BATCH_BYTES)
        while calls.next_call is not None:
            answer = rows_from_pb(stub.ScanKv(call_to_pb(calls.next_call), timeout=60))
            calls.answered(answer)
            if answer.arrow_ipc:
                values = pa.ipc.open_stream(answer.arrow_ipc).read_all()["value"].to_pylist()
                count += len([decode(value) for value in values])
    return count


class RowDecoder:
    """Decodes Fluss's compacted rows one value at a time, as plain Python does."""

    def __init__(self, columns: tuple[Column, ...]) -> None:
        self._header = 2 + (len(columns) + 7) // 8
        self._readers = [_READERS[column.data_type.root] for column in columns]

    def __call__(self, value: bytes) -> tuple[Any, ...]:
        """Return the values of a row. It refuses a row with NULL, which the benchmark never writes."""
        if any(value[2 : self._header]):
            raise ValueError("a row with NULL")
        position = self._header
        row = []
        for read in self._readers:
            item, position = read(value, position)
            row.append(item)
        return tuple(row)


def _varint(value: bytes, position: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = value[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position
        shift += 7


def _double(value: bytes, position: int) -> tuple[float, int]:
    return struct.unpack_from("<d", value, position)[0], position + 8


def _string(value: bytes, position: int) -> tuple[str, int]:
    length, position = _varint(value, position)
    return value[position : position + length].decode(), position + length


def _timestamp(value: bytes, position: int) -> tuple[int, int]:
    milliseconds, position = _varint(value, position)
    nanoseconds, position = _varint(value, position)
    return milliseconds * 1_000_000 + nanoseconds, position


_READERS: Final = {
    DataTypeRoot.INT: _varint,
    DataTypeRoot.BIGINT: _varint,
    DataTypeRoot.DECIMAL: _varint,
    DataTypeRoot.DOUBLE: _double,
    DataTypeRoot.STRING: _string,
    DataTypeRoot.TIMESTAMP: _timestamp,
}


def _memory_of_scanners(stub: KvScanStub, table: TableInfo, process: psutil.Process) -> tuple[int, int]:
    """Open scanners, read a batch from each, and return their number and the growth of the server at rest."""
    before = process.memory_info().rss
    scans = [
        BucketScanCalls(TableBucket(table.table_id, number % _BUCKETS), None, _BATCH_BYTES // 4)
        for number in range(_SCANNERS)
    ]
    for calls in scans:
        if calls.next_call is not None:
            calls.answered(rows_from_pb(stub.ScanKv(call_to_pb(calls.next_call), timeout=60)))
    grown = process.memory_info().rss - before
    closing = [call for calls in scans if (call := calls.close_call()) is not None]
    for call in closing:
        stub.ScanKv(call_to_pb(call), timeout=60)
    return len(closing), grown


@contextmanager
def _server() -> Iterator[tuple[TieringClient, KvScanStub, psutil.Process]]:
    with tempfile.TemporaryDirectory(prefix="fluss-tiering-bench-") as folder:
        processes = Processes(Path(folder) / "run")
        try:
            target = start_server(processes, Path(folder) / "data", _PORT)
            process = psutil.Process(processes.running[0].pid)
            with TieringClient(target) as client, grpc.insecure_channel(target, CHANNEL_OPTIONS) as channel:
                yield client, KvScanStub(channel), process
        finally:
            processes.stop()
