"""Lake snapshots of the embedded storage: what is left of them on the disk."""

from __future__ import annotations

import os
from pathlib import Path

from engine_support import ServerThread, new_table
from fluss_tiering.client import TieringClient
from fluss_tiering.model.table import TableBucket
from fluss_tiering.model.tiering import Claim
from fluss_tiering.server.core.lake import manager

HOUR_S = 3600


def test_offsets_files_go_once_nobody_needs_them(tmp_path: Path, monkeypatch) -> None:  # D15
    monkeypatch.setattr(manager, "_KEPT_SNAPSHOTS", 2)
    with ServerThread(tmp_path / "data") as server, TieringClient(server.target) as client:
        table, other = (new_table(client, [1, 2], primary_key=False) for _ in range(2))
        offsets = {TableBucket(table.table_id, 0): 2}
        (claim,) = client.claim_tables([table.path], "lease", None, "driver")
        assert isinstance(claim, Claim)

        def prepare(hours_ago: int) -> str:
            path = client.prepare_lake_snapshot(table, claim.tiering_epoch, offsets)
            then = Path(path).stat().st_mtime - hours_ago * HOUR_S
            os.utime(path, (then, then))
            return path

        def commit(snapshot_id: int, path: str) -> None:
            client.commit_lake_snapshot(table, claim.tiering_epoch, snapshot_id, offsets, path, f"commit {snapshot_id}")

        (of_other,) = client.claim_tables([other.path], "lease", None, "driver")
        assert isinstance(of_other, Claim)
        others = client.prepare_lake_snapshot(other, of_other.tiering_epoch, {TableBucket(other.table_id, 0): 2})
        os.utime(others, (0, 0))
        registered = [prepare(hours_ago=100 - number) for number in range(4)]
        failed_long_ago, may_still_commit = prepare(hours_ago=90), prepare(hours_ago=20)
        for snapshot_id, path in enumerate(registered):
            commit(snapshot_id, path)
        # All of them are within a day of the newest, which was written 97 hours ago.
        assert all(Path(path).exists() for path in [*registered, failed_long_ago, may_still_commit])
        newest = prepare(hours_ago=0)
        commit(4, newest)
        left = {
            path for path in [*registered, failed_long_ago, may_still_commit, newest, others] if Path(path).exists()
        }
        assert left == {registered[-1], may_still_commit, newest, others}
        # What is known with its offsets can be registered again, and what may still commit can.
        commit(4, newest)
        commit(5, may_still_commit)
