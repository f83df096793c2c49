"""KV snapshots by their ids: several are looked for at once, and the answer is as if they were looked for in turn."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from engine_support import ServerThread, new_table
from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import KvSnapshot, TableBucket
from fluss_tiering.storage.embedded.storage import EmbeddedStorage


def test_snapshots_are_looked_for_at_once_and_come_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    four = threading.Barrier(4, timeout=10)

    def kv_snapshot(_: EmbeddedStorage, bucket: TableBucket, snapshot_id: int) -> KvSnapshot | None:
        four.wait()
        return None if snapshot_id >= 100 else KvSnapshot(bucket, snapshot_id, snapshot_id, 1, 1, f"{snapshot_id}")

    with ServerThread(tmp_path / "data") as server, TieringClient(server.target) as client:
        bucket = TableBucket(new_table(client, [1]).table_id, 0)
        monkeypatch.setattr(EmbeddedStorage, "kv_snapshot", kv_snapshot)
        ids = [7, 3, 9, 1, 8, 2, 6, 4]
        found = client.kv_snapshot_metadata([(bucket, snapshot_id) for snapshot_id in ids])
        assert [each.snapshot_id for each in found] == ids
        with pytest.raises(FlussTieringError, match="snapshot 101 of") as refused:
            client.kv_snapshot_metadata([(bucket, snapshot_id) for snapshot_id in (1, 101, 100, 2)])
        assert refused.value.code is ErrorCode.KV_SNAPSHOT_NOT_EXIST
        monkeypatch.undo()
        assert client.kv_snapshot_metadata([]) == []
        (taken,) = client.take_kv_snapshots([client.list_tables("db")[0].path])[bucket.table_id]
        assert client.kv_snapshot_metadata([(bucket, taken.snapshot_id)]) == [taken]
