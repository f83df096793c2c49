"""The KvScan service."""

# ruff: noqa: N802 - the methods are named by the API

from __future__ import annotations

import asyncio
from typing import Final

import pyarrow as pa

from fluss_tiering.api.v1 import kv_scan_pb2 as pb
from fluss_tiering.api.v1.kv_scan_pb2_grpc import KvScanServicer as GeneratedKvScanServicer
from fluss_tiering.model.table import TableBucket
from fluss_tiering.server.components import ServerComponents
from fluss_tiering.server.core.scans.manager import KvScannerManager
from fluss_tiering.server.core.scans.scanner import ScanStep
from fluss_tiering.server.edge.callers.identity import caller
from fluss_tiering.storage.protocol import TableStorage
from fluss_tiering.wire import kv_scan as wire

_ROWS_SCHEMA: Final = pa.schema([pa.field("value", pa.binary(), nullable=False)])


def open_scanner(
    scanners: KvScannerManager,
    storage: TableStorage,
    bucket: TableBucket,
    limit: int | None,
    owner: str,
) -> tuple[int, ScanStep | None]:
    """Open a scanner of a bucket. A bucket without rows takes no slot.

    Args:
        limit: The number of rows after which the scan ends; None for all rows.
        owner: The name of who opens the scanner.

    Returns:
        The bucket's log end offset, and what the opening call reads; None instead if the bucket has no rows.

    Raises:
        FlussTieringError: TOO_MANY_SCANNERS if no slot is free; SCANNER_EXPIRED if the bucket was closed meanwhile;
            all others as `TableStorage.open_kv_scan`.
    """
    scanner_id = b""

    def admit() -> None:
        nonlocal scanner_id
        scanner_id = scanners.reserve(bucket, owner)

    try:
        log_offset, scan = storage.open_kv_scan(bucket, admit=admit, on_lost=lambda: scanners.lost(scanner_id))
        if scan is None:
            # A storage may find out only after the reservation that there are no rows.
            scanners.abandon(scanner_id)
            return log_offset, None
        return log_offset, scanners.opened(scanner_id, scan, limit)
    except BaseException:
        scanners.abandon(scanner_id)
        raise


def read_rows(scanners: KvScannerManager, step: ScanStep, batch_size_bytes: int) -> wire.ScannedRows:
    """Read the answer to a call that is under way, and end the call.

    After an error the same call may be tried again.

    Args:
        step: What the call reads.
        batch_size_bytes: The size of the rows that the client asked for, in bytes. The operator's maximum limits it.

    Raises:
        FlussTieringError: SCANNER_EXPIRED if the bucket was closed; CORRUPT_DATA if its data is damaged; STORAGE if
            reading failed.
    """
    size = None if step.again else min(batch_size_bytes, scanners.limits.max_batch_size)
    try:
        batch = step.scan.read(step.position, size, step.max_rows)
        arrow_ipc = _ipc_stream(batch.values)
    except BaseException:
        scanners.failed(step)
        raise
    return wire.ScannedRows(
        scanner_id=step.scanner.scanner_id,
        has_more=scanners.answered(step, batch),
        arrow_ipc=arrow_ipc,
        log_offset=step.scan.log_offset if step.call_seq_id == 0 else None,
    )


def _ipc_stream(values: pa.Array) -> bytes:
    batch = pa.RecordBatch.from_arrays([values], schema=_ROWS_SCHEMA)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


_READS_AT_ONCE: Final = 4
"""The number of concurrent reads. Reading holds the interpreter's lock, so more would only use memory and threads."""


class KvScanServicer(GeneratedKvScanServicer):
    """Scans of primary-key tables over gRPC. Rows are read in the threads of the storage."""

    def __init__(self, components: ServerComponents) -> None:
        self._threads = components.threads
        self._storage = components.storage
        self._scanners = components.scanners
        self._check = components.check
        self._reading = asyncio.Semaphore(_READS_AT_ONCE)
        self._closing: set[asyncio.Future[None]] = set()

    async def ScanKv(self, request: pb.ScanKvRequest, context: object) -> pb.ScanKvResponse:
        """Open a scanner, continue a scan, or close a scanner. Closing needs no leadership."""
        call = wire.call_from_pb(request)
        if isinstance(call, wire.CloseScan):
            await self._threads.storage(self._scanners.close, call.scanner_id, caller().identity.name)
            return pb.ScanKvResponse()
        self._check()
        owner = caller().identity.name
        # The steps run to their end, whether or not the client still waits, so that the scanner is never left half-way.
        steps = asyncio.ensure_future(self._open(call) if isinstance(call, wire.OpenScan) else self._continue(call))
        try:
            return wire.rows_to_pb(await asyncio.shield(steps))
        except asyncio.CancelledError:
            if isinstance(call, wire.OpenScan):
                closing = asyncio.ensure_future(self._close_unheard(steps, owner))
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)
            raise

    async def _open(self, call: wire.OpenScan) -> wire.ScannedRows:
        log_offset, step = await self._threads.storage(
            open_scanner, self._scanners, self._storage, call.bucket, call.limit, caller().identity.name
        )
        if step is None:
            return wire.ScannedRows(None, has_more=False, arrow_ipc=b"", log_offset=log_offset)
        try:
            return await self._read(step, call.batch_size_bytes)
        except BaseException:
            # Nobody knows the id of the scanner, so nobody else could close it.
            await self._threads.storage(self._scanners.close, step.scanner.scanner_id, step.scanner.owner)
            raise

    async def _continue(self, call: wire.ContinueScan) -> wire.ScannedRows:
        step = self._scanners.begin(call.scanner_id, call.call_seq_id, caller().identity.name)
        return await self._read(step, call.batch_size_bytes)

    async def _read(self, step: ScanStep, batch_size_bytes: int) -> wire.ScannedRows:
        async with self._reading:
            return await self._threads.storage(read_rows, self._scanners, step, batch_size_bytes)

    async def _close_unheard(self, steps: asyncio.Future[wire.ScannedRows], owner: str) -> None:
        """Close a scanner whose client left before it could learn the id. Other scanners expire or are continued."""
        await asyncio.wait([steps])
        if steps.cancelled() or steps.exception() is not None:
            return
        scanner_id = steps.result().scanner_id
        if scanner_id is not None:
            # In a thread, because the end of a scan of a cluster is told to the bucket's leader.
            await self._threads.storage(self._scanners.close, scanner_id, owner)
