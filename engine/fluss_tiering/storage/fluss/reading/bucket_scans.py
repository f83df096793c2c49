"""Scans of buckets that a reader makes by itself at the leaders, without the tiering server."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import pyarrow as pa

from fluss_tiering.formats.compacted.value_layout import PLAIN
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import TableBucket, TableInfo
from fluss_tiering.storage.fluss.reading.scan_session import ScanSession
from fluss_tiering.storage.fluss.reading.schema_history import SchemaHistory
from fluss_tiering.storage.fluss.reading.stored_values import decode_stored
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from fluss_tiering.storage.fluss.supported import value_layout
from fluss_tiering.storage.retry_backoff import OPENING_SCAN, RetryBackoff


class BucketScans:
    """Opens scans of a cluster's buckets.

    Args:
        client: The client of the cluster, which others may share.
    """

    def __init__(self, client: FlussClient) -> None:
        self._client = client

    def open(
        self, table: TableInfo, bucket: TableBucket, columns: Sequence[str] | None = None
    ) -> Generator[pa.RecordBatch, None, None] | None:
        """Open a scan of the rows that a bucket has now, and wait while its leader is away or has no room for it.

        A scan that fails after its first row cannot go on: another scan would show a later moment.

        Args:
            table: The table, as it was when the reader planned.
            bucket: A bucket of the table, which has a primary key.
            columns: The names of the wanted columns, in their order; None for all.

        Returns:
            The rows, in batches; None if the bucket's leader has no scan sessions, as before Fluss 1.0. A batch holds
            about 4 MiB of stored rows. Closing the generator closes the session.

        Raises:
            FlussTieringError: The errors of `ScanSession.open` if they last; INVALID_REQUEST if a column does not exist
                or is named twice; INVALID_TABLE if the table is stored in a way that is not supported here. Iterating
                raises those of `ScanSession.take`, and INVALID_TABLE if the table's columns have changed in the
                meantime.
        """
        schemas = SchemaHistory(self._client, table, columns)
        value_layout(table)
        backoff = RetryBackoff(passing=OPENING_SCAN)
        while True:
            try:
                session = ScanSession.open(self._client, table.path, bucket)
            except FlussTieringError as error:
                backoff.wait_after(error)
            else:
                return None if session is None else _rows(session, schemas)


def _rows(session: ScanSession, schemas: SchemaHistory) -> Generator[pa.RecordBatch, None, None]:
    with session:
        while session.has_more:
            yield decode_stored(session.take(), schemas, PLAIN)
