"""Reading splits of a Fluss cluster: logs from leaders and the remote folder, KV snapshots from their files."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from fluss_tiering.formats.log.batch import LogBatch, LogBatchHeader
from fluss_tiering.formats.log.decoding import decode_log_batches
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import KvSnapshot, TableBucket, TableInfo
from fluss_tiering.storage.fluss.reading.log_chunks import LogChunk, LogRange, log_chunks, naming_source
from fluss_tiering.storage.fluss.reading.remote_files import RemoteFiles
from fluss_tiering.storage.fluss.reading.schema_history import SchemaHistory
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from fluss_tiering.storage.fluss.table_formats import value_layout
from fluss_tiering.storage.reading import UNAVAILABLE_TIMEOUT_S

_CHUNK_BYTES = 8 << 20
_DAMAGED: Final = frozenset({ErrorCode.CORRUPT_DATA, ErrorCode.UNSUPPORTED_VERSION})
"""The errors of what cannot be read. Without a checksum, a damaged magic is one of a newer version."""


class FlussSplitReader:
    """A `SplitReader` over a cluster.

    Leaders send only the columns that are wanted. A batch that a leader has cut to them has no valid checksum; if it
    cannot be read, it is fetched again as a whole. Remote segments hold all columns.

    Args:
        client: The client of the cluster, which others may share.
        files: The files of the cluster's remote folder.
        unavailable_timeout_s: The seconds that a bucket may be without a leader while its log is read.
    """

    def __init__(
        self,
        client: FlussClient,
        files: RemoteFiles | None = None,
        *,
        unavailable_timeout_s: float = UNAVAILABLE_TIMEOUT_S,
    ) -> None:
        self._client = client
        self._files = files or RemoteFiles()
        self._unavailable_timeout_s = unavailable_timeout_s

    def read_log(
        self,
        table: TableInfo,
        bucket: TableBucket,
        start_offset: int,
        end_offset: int,
        columns: Sequence[str] | None = None,
    ) -> Iterator[LogBatch]:
        """Yield the rows of a range of the log; see `SplitReader.read_log`."""
        schemas = SchemaHistory(self._client, table, columns)
        wanted = LogRange(table.path, bucket, start_offset, end_offset, schemas.pushed_down, schema_id=table.schema_id)
        expected = start_offset
        try:
            for batch, next_offset in self._batches(schemas, wanted):
                expected = next_offset
                yield batch
        except FlussTieringError as error:
            if error.code not in _DAMAGED or wanted.projection is None:
                raise
        else:
            return
        whole = replace(wanted, start_offset=expected, projection=None)
        yield from (batch for batch, _ in self._batches(schemas, whole))

    def _batches(self, schemas: SchemaHistory, wanted: LogRange) -> Iterator[tuple[LogBatch, int]]:
        """Yield the batches of a range, each with the offset after it."""
        expected = wanted.start_offset
        for chunk in log_chunks(self._client, self._files, wanted, unavailable_timeout_s=self._unavailable_timeout_s):
            found = _following(chunk, expected, wanted)
            if found:
                expected = found[-1][1].next_offset
            for schema_id, run in itertools.groupby(found, key=lambda batch: batch[1].schema_id):
                headers = list(run)
                decoded = _decode(chunk, headers, schemas, schema_id)
                for _, header in headers:
                    with naming_source(chunk.source, chunk.start):
                        rows = next(decoded).slice(wanted.start_offset, wanted.end_offset)
                    yield replace(rows, records=schemas.to_present(rows.records, schema_id)), header.next_offset

    def read_kv_snapshot(
        self, table: TableInfo, snapshot: KvSnapshot, from_key: bytes | None, to_key: bytes | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a key range; see `SplitReader.read_kv_snapshot`."""
        # Loading compiled decoders and RocksDB takes a worker longer than reading a small piece of a log.
        from fluss_tiering.formats.compacted.row import decode_stored  # noqa: PLC0415
        from fluss_tiering.storage.fluss.reading.kv_snapshot_reader import KvSnapshotReader  # noqa: PLC0415

        schemas, layout = SchemaHistory(self._client, table), value_layout(table)
        files = KvSnapshotReader(self._client, self._files, table.path, snapshot)
        for entries in files.entries(from_key, to_key, _CHUNK_BYTES):
            try:
                rows = decode_stored(entries.column("value"), schemas, layout)
            except FlussTieringError as error:
                raise files.corrupt(error) if error.code is ErrorCode.CORRUPT_DATA else error from error
            yield rows

    def measure_kv_snapshot(self, table: TableInfo, snapshot: KvSnapshot) -> KvSnapshot:
        """Measure the snapshot by the indexes of its files; see `SplitReader.measure_kv_snapshot`."""
        from fluss_tiering.storage.fluss.reading.kv_snapshot_reader import KvSnapshotReader  # noqa: PLC0415 - as above

        value_layout(table)
        return KvSnapshotReader(self._client, self._files, table.path, snapshot).measured()


def _decode(
    chunk: LogChunk, batches: Sequence[tuple[int, LogBatchHeader]], schemas: SchemaHistory, schema_id: int
) -> Iterator[LogBatch]:
    """Decode batches of one schema. They have at least those of the wanted columns that the schema has."""
    schema = schemas.arrow(schema_id)
    if chunk.projection is None:
        return decode_log_batches(chunk.data, batches, schema, included=schemas.included(schema_id))
    held = pa.schema([schema.field(index) for index in chunk.projection])
    return decode_log_batches(chunk.data, batches, held, verify_crc=False)


def _following(chunk: LogChunk, expected: int, wanted: LogRange) -> list[tuple[int, LogBatchHeader]]:
    """Return the batches of a chunk that hold offsets from the expected one on.

    Raises:
        FlussTieringError: CORRUPT_DATA if there is a gap in the offsets.
    """
    found: list[tuple[int, LogBatchHeader]] = []
    for position, header in chunk.batches():
        if header.next_offset <= expected:
            continue
        if expected >= wanted.end_offset:
            break
        if header.base_offset > expected or (header.base_offset < expected != wanted.start_offset):
            raise FlussTieringError(
                ErrorCode.CORRUPT_DATA,
                f"{chunk.source} continues at offset {header.base_offset}: expected {expected}; restore it from a "
                "replica, or re-create the table",
            )
        found.append((position, header))
        expected = header.next_offset
    return found
