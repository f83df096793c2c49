"""Rows are acknowledged request by request, also when one side fails in the middle of a write."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from engine_support import SCHEMA, ServerThread, log_end, new_table
from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import WriteKind


def rows(count: int, *, start: int = 0, width: int = 4) -> pa.Table:
    return pa.table({"id": range(start, start + count), "name": ["x" * width] * count}, schema=SCHEMA)


def test_tables_and_batches_are_acknowledged_in_requests(client: TieringClient) -> None:
    table = new_table(client, primary_key=False)
    batches = [rows(10), rows(5).to_batches()[0], rows(0), rows(20_000, width=1000)]
    acknowledged = list(client.write_rows(table.path, WriteKind.APPEND, batches))
    assert acknowledged[:2] == [10, 5]
    assert len(acknowledged) > 6, "20 MB go in requests of about 4 MiB"
    assert sum(acknowledged) == log_end(client, table.path) == 20_015


def test_rows_that_are_much_larger_than_others_go_in_requests_of_their_own(client: TieringClient) -> None:
    """Two rows of 8 MB each would be too large for one request, although the average row is small."""
    table = new_table(client, primary_key=False)
    large = pa.table({"id": [10, 11, 12], "name": ["x" * (8 << 20)] * 3}, schema=SCHEMA)
    batch = pa.concat_tables([rows(10), large, rows(30, start=13)]).combine_chunks()
    acknowledged = list(client.write_rows(table.path, WriteKind.APPEND, [batch]))
    assert len(acknowledged) >= 3
    assert sum(acknowledged) == log_end(client, table.path) == 43


def test_nothing_to_write_is_nothing(client: TieringClient) -> None:
    table = new_table(client, primary_key=False)
    assert list(client.write_rows(table.path, WriteKind.APPEND, [])) == []
    assert log_end(client, table.path) == 0


def test_the_callers_own_error_reaches_the_caller(client: TieringClient) -> None:
    table = new_table(client, primary_key=False)

    def broken() -> Iterator[pa.Table]:
        yield rows(10)
        raise LookupError("the file ended")

    with pytest.raises(LookupError, match="the file ended"):
        list(client.write_rows(table.path, WriteKind.APPEND, broken()))
    assert list(client.write_rows(table.path, WriteKind.APPEND, [rows(1)])) == [1]


def test_a_caller_may_stop_listening(client: TieringClient) -> None:
    table = new_table(client, primary_key=False)
    acknowledged = client.write_rows(table.path, WriteKind.APPEND, (rows(10) for _ in range(100)))
    assert next(acknowledged) == 10
    acknowledged.close()
    assert list(client.write_rows(table.path, WriteKind.APPEND, [rows(1)])) == [1]


def test_rows_before_a_refused_request_are_written(client: TieringClient) -> None:
    table = new_table(client, primary_key=False)
    acknowledged = []
    wrong = pa.table({"id": ["text"], "name": ["a"]})
    with pytest.raises(FlussTieringError) as refused:
        acknowledged.extend(client.write_rows(table.path, WriteKind.APPEND, [rows(10), wrong, rows(10)]))
    assert refused.value.code is ErrorCode.INVALID_ROWS
    assert log_end(client, table.path) == 10


def test_a_message_over_the_limit_says_so(tmp_path) -> None:
    with (
        ServerThread(tmp_path / "data", max_message_bytes=1 << 20) as running,
        TieringClient(running.target) as client,
    ):
        table = new_table(client, primary_key=False)
        with pytest.raises(FlussTieringError) as refused:
            list(client.write_rows(table.path, WriteKind.APPEND, [rows(1, width=2 << 20)]))
        assert refused.value.code is ErrorCode.INVALID_REQUEST
        assert "larger than max" in refused.value.message
        assert "a single row must fit into a message" in refused.value.message
        assert log_end(client, table.path) == 0
