"""Writes to a table whose number of buckets is changed meanwhile: what was written is told as written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from fluss_tables import COLUMNS, descriptor

from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.table import TableBucket, TableInfo, TablePath, WriteKind
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey
from fluss_tiering.storage.fluss.rpc.client import ParallelCalls
from fluss_tiering.storage.fluss.writer import ClusterWriter


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
