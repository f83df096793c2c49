"""Reading what tests wrote to a real Fluss cluster, also through a client that changes what the cluster answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fluss_tables import append, descriptor, new_table, rows, snapshot_behind, upsert

from fluss_tiering.formats.log.batch import LogBatch
from fluss_tiering.model.table import KvSnapshot, TableBucket, TableInfo
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey
from fluss_tiering.storage.fluss.rpc.calls.log import FetchedLog, fetch_log
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from fluss_tiering.storage.fluss.rpc.errors import FlussError, FlussServerError
from fluss_tiering.storage.protocol import SplitReader
from waiting import wait_until


class AlteringClient:
    """A client that passes on the cluster's answers after `alter`, which may raise an error."""

    def __init__(self, client: FlussClient, alter: Callable[[Any], Any]) -> None:
        self._client = client
        self._alter = alter

    def call(self, call):
        return self._alter(self._client.call(call))


class ObservedClient:
    """A client that records the fetches of logs and the size of their answers. It may change an answer."""

    def __init__(self, client: FlussClient, alter: Callable[[Any], Any] = lambda answer: answer) -> None:
        self._client = client
        self._alter = alter
        self.projections: list[list[int] | None] = []
        self.records_bytes = 0

    def call(self, call: Any) -> Any:
        if call.api is ApiKey.FETCH_LOG:
            (asked,) = call.request.tables_req
            self.projections.append(list(asked.projected_fields) if asked.projection_pushdown_enabled else None)
        answer = self._client.call(call)
        if isinstance(answer, FetchedLog):
            self.records_bytes += len(answer.records)
            answer = self._alter(answer)
        return answer


def bucket_of(made: TableInfo, bucket: int = 0) -> TableBucket:
    return TableBucket(made.table_id, bucket)


def read(reader: SplitReader, made: TableInfo, start: int, end: int) -> list[LogBatch]:
    return list(reader.read_log(made, bucket_of(made), start, end))


def ids_of(batches: list[LogBatch]) -> list[int]:
    """Return the ids in consecutive batches."""
    offset = batches[0].base_offset if batches else 0
    for batch in batches:
        assert batch.base_offset == offset
        offset += batch.records.num_rows
    return [each for batch in batches for each in batch.records.column("id").to_pylist()]


def moved_log(fluss: FlussClient, batches: int = 5, step: int = 2_000, **properties: str) -> TableInfo:
    """Make a log whose first segments are only in the remote folder."""
    made = new_table(fluss, descriptor(**{"table.log.tiered.local-segments": "1"}, **properties))
    for start in range(0, batches * step, step):
        append(fluss, made, rows(start, start + step), compression="NONE")
    wait_until_moved(fluss, made)
    return made


def wait_until_moved(fluss: FlussClient, made: TableInfo, offset: int = 0) -> None:
    """Wait until this offset of bucket 0 is only in the remote folder."""

    def is_remote() -> bool:
        try:
            return bool(fluss.call(fetch_log(made.path, bucket_of(made), offset)).remote_segments)
        except FlussServerError as error:
            # While a leader deletes segments, it neither has them nor knows yet that they are in the remote folder.
            if error.fluss_error is not FlussError.LOG_OFFSET_OUT_OF_RANGE_EXCEPTION:
                raise
            return False

    wait_until(is_remote)


def kv_table(fluss: FlussClient, count: int = 100) -> tuple[TableInfo, KvSnapshot]:
    """Make a primary-key table with ids from 0 on, and return it with its snapshot."""
    made = new_table(fluss, descriptor(primary_key=True, tiered=True, **{"table.datalake.freshness": "1h"}))
    return made, snapshot_of(fluss, made, upsert(fluss, made, rows(0, count)))


def snapshot_of(fluss: FlussClient, made: TableInfo, log_offset: int) -> KvSnapshot:
    """Return the snapshot as the server describes it."""
    latest = snapshot_behind(fluss, made, log_offset)
    return KvSnapshot(bucket_of(made), latest.snapshot_id, latest.log_offset, row_count=-1, size_bytes=0, path="")
