"""Reads splits of a Fluss cluster: logs from their leaders and the remote folder, KV snapshots from their files."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pyarrow as pa

from fluss_tiering.formats.log_batch import LogBatch, LogBatchHeader, decode_log_batches
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import KvSnapshot, TableBucket, TableInfo
from fluss_tiering.storage.fluss.client import FlussClient
from fluss_tiering.storage.fluss.log_chunks import LogChunk, LogRange, log_chunks, naming_source
from fluss_tiering.storage.fluss.remote_files import RemoteFiles
from fluss_tiering.storage.fluss.schema_history import SchemaHistory
from fluss_tiering.storage.patience import PATIENCE_S
from fluss_tiering.storage.timing import DecodeTimer

_CHUNK_BYTES = 8 << 20


class FlussSplitReader:
    """A `SplitReader` over a cluster, whose client others may share.

    Args:
        client: of the cluster.
        files: of its remote folder.
        patience_s: how long a bucket of which a log is read may be without a leader.
    """

    def __init__(
        self, client: FlussClient, files: RemoteFiles | None = None, *, patience_s: float = PATIENCE_S
    ) -> None:
        self._client = client
        self._files = files or RemoteFiles()
        self._patience_s = patience_s
        self._decoding = DecodeTimer()

    @property
    def decode_seconds(self) -> float:
        """Spent so far on turning what was fetched into rows."""
        return self._decoding.seconds

    def read_log(self, table: TableInfo, bucket: TableBucket, start_offset: int, end_offset: int) -> Iterator[LogBatch]:
        """The rows of [start_offset, end_offset) in log order, cut to that range.

        Raises:
            FlussTieringError: what `log_chunks` raises; INVALID_TABLE when the table's columns were altered meanwhile.
        """
        schemas = SchemaHistory(self._client, table)
        expected = start_offset
        wanted = LogRange(table.path, bucket, start_offset, end_offset)
        for chunk in log_chunks(self._client, self._files, wanted, patience_s=self._patience_s):
            found = _following(chunk, expected, start_offset, end_offset)
            for schema_id, run in itertools.groupby(found, key=lambda batch: batch[1].schema_id):
                batches = decode_log_batches(chunk.data, list(run), schemas.arrow(schema_id))
                while True:
                    with naming_source(chunk.source, chunk.start), self._decoding():
                        batch = next(batches, None)
                    if batch is None:
                        break
                    rows = batch.slice(start_offset, end_offset)
                    records = schemas.to_present(rows.records, schema_id)
                    yield LogBatch(rows.base_offset, rows.commit_timestamp, rows.change_types, records)
            if found:
                expected = found[-1][1].next_offset

    def read_kv_snapshot(
        self, table: TableInfo, snapshot: KvSnapshot, from_key: bytes | None, to_key: bytes | None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of the key range [from_key, to_key) in the table's Arrow schema.

        Raises:
            FlussTieringError: KV_SNAPSHOT_NOT_EXIST, CORRUPT_DATA, STORAGE; INVALID_TABLE when the table's columns were
                altered meanwhile.
        """
        # Compiled decoders and RocksDB take a worker longer to load than a small piece of a log takes to read.
        from fluss_tiering.storage.fluss.kv_snapshot_files import SnapshotFiles  # noqa: PLC0415
        from fluss_tiering.storage.fluss.stored_values import decode_stored  # noqa: PLC0415

        schemas = SchemaHistory(self._client, table)
        files = SnapshotFiles(self._client, self._files, table.path, snapshot)
        for entries in files.entries(from_key, to_key, _CHUNK_BYTES):
            try:
                with self._decoding():
                    rows = decode_stored(entries.column("value"), schemas)
            except FlussTieringError as error:
                raise files.corrupt(error) if error.code is ErrorCode.CORRUPT_DATA else error from error
            yield rows

    def measure_kv_snapshot(self, table: TableInfo, snapshot: KvSnapshot) -> KvSnapshot:
        """The snapshot with its size, and keys at which it may be cut, from the ends of its files.

        Raises:
            FlussTieringError: KV_SNAPSHOT_NOT_EXIST, CORRUPT_DATA for a file that is missing, STORAGE.
        """
        from fluss_tiering.storage.fluss.kv_snapshot_files import SnapshotFiles  # noqa: PLC0415 - as above

        return SnapshotFiles(self._client, self._files, table.path, snapshot).measured()


def _following(chunk: LogChunk, expected: int, start_offset: int, end_offset: int) -> list[tuple[int, LogBatchHeader]]:
    """The batches of a chunk that hold the offsets from the one that is expected on. Raises CORRUPT_DATA for a gap."""
    found: list[tuple[int, LogBatchHeader]] = []
    for position, header in chunk.batches():
        if header.next_offset <= expected:
            continue
        if expected >= end_offset:
            break
        if header.base_offset > expected or (header.base_offset < expected != start_offset):
            raise FlussTieringError(
                ErrorCode.CORRUPT_DATA,
                f"{chunk.source} goes on at offset {header.base_offset}: expected {expected}; restore it from a "
                "replica, or re-create the table",
            )
        found.append((position, header))
        expected = header.next_offset
    return found
