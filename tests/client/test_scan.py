"""Scans through the client against a real server."""

from __future__ import annotations

from engine_support import new_table, put
from fluss_tiering.client import TieringClient


def test_all_rows_come_once_with_where_the_log_goes_on(client: TieringClient) -> None:  # K5
    table = new_table(client, range(5000), num_buckets=6)
    put(client, table, {1: "changed"})
    with client.scan(table, batch_size_bytes=4096) as scan:
        names = {row["id"]: row["name"] for batch in scan for row in batch.to_pylist()}
        offsets = scan.log_offsets
    assert names == {each: f"name {each}" for each in range(5000)} | {1: "changed"}
    assert offsets == {info.bucket: info.log_end_offset for info in client.list_buckets([table.path])[table.path]}
