"""Opening and reading scanners. A call either succeeds as a whole or changes nothing."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from fluss_tiering.model.table import TableBucket
from fluss_tiering.server.core.scans.manager import KvScannerManager
from fluss_tiering.server.core.scans.scanner import ScanStep
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
        scanners: The scanners of the server.
        storage: The tables.
        bucket: The bucket.
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
        scanners: The scanners of the server.
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
