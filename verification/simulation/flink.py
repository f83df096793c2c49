"""Fluss's own tiering service, which takes turns with our rounds: `TieringSourceReader` and `IcebergLakeWriter`.

It claims tables by heartbeats, as our rounds do, but it deletes by key, and its commits name their offsets in a file of
the storage only. Its commits have no fence in the lake. It therefore gives up if the lake has changed since it looked
for commits that are not registered. The model looks once more in the moment of the commit, since what follows from
commits without a fence is not what is simulated here.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from fluss_tiering.lake.files import FileContent, FileMetrics, LakeFile
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.lake import COMMIT_USER, LakeSnapshot
from fluss_tiering.model.table import TableBucket, TableInfo
from fluss_tiering.model.tiering import Claim, HeartbeatEntry, TieringStats
from simulation.lake import Handle
from simulation.lake_commits import Delta
from simulation.lake_files import FILE_BYTES, FileRows, write_deletes
from simulation.lake_snapshots import ancestors
from simulation.network import Endpoint, SimClient
from simulation.scheduler import Process
from simulation.storage import Change

if TYPE_CHECKING:
    from simulation.world import World


class FlinkTiering:
    """The service. It tiers one table after the other."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = random.Random(f"{world.seed}/flink")
        self._client = SimClient(Endpoint(world.network, Process("flink")))
        self.counters = {
            "rounds of Flink": 0,
            "commits of Flink": 0,
            "commits of Flink that were overtaken": 0,
            "commits of Flink that it did not register": 0,
        }

    def run(self) -> None:
        """Tier tables that are due until the end of the run."""
        while self._world.faults:
            self._world.scheduler.sleep(self._chance.randrange(120_000))
            try:
                claim = self._client.heartbeat(request_table=True, driver="flink").claim
                if claim is not None:
                    self.counters["rounds of Flink"] += 1
                    self._round(claim)
            except FlussTieringError:
                # The round times out, or its table was dropped.
                continue

    def _round(self, claim: Claim) -> None:
        (table,) = self._client.get_tables([claim.path])
        known = self._client.lake_snapshot(table.path)
        handle = Handle(self._world.lake, self._world.lake.content(str(table.path)))
        files, offsets = self._written(table, known)
        self._world.scheduler.sleep(self._chance.randrange(10, 30_000))
        path = self._client.prepare_lake_snapshot(table, claim.tiering_epoch, offsets)
        # It commits to main, and leaves alone the tables whose rounds commit to a branch.
        has_branch = self._world.lake.content(handle.name()).has_branch
        if not files or has_branch or not self._is_newest(handle, known):
            self.counters["commits of Flink that were overtaken"] += bool(files)
            self._client.heartbeat(failed=[HeartbeatEntry(table.table_id, claim.tiering_epoch, error_message="behind")])
            return
        snapshot_id = self._commit(handle, files, path)
        if self._chance.random() < 0.3:
            # It restarts, and forgets the round. Whoever tiers the table next finds the commit.
            self.counters["commits of Flink that it did not register"] += 1
            return
        self._client.commit_lake_snapshot(
            table, claim.tiering_epoch, snapshot_id, offsets, path, f"snapshot-{snapshot_id}"
        )
        entry = HeartbeatEntry(table.table_id, claim.tiering_epoch, stats=TieringStats())
        self._client.heartbeat(finished=[entry])

    def _is_newest(self, handle: Handle, known: LakeSnapshot | None) -> bool:
        """Return whether what is registered is all that was committed, but for compactions."""
        head = self._world.lake.content(handle.name()).head
        newest = next((node.snapshot_id for node in ancestors(head) if not node.replaces), None)
        return newest == (known and known.snapshot_id)

    def _written(self, table: TableInfo, known: LakeSnapshot | None) -> tuple[list[LakeFile], dict[TableBucket, int]]:
        """Write what is in the logs behind what is registered, and return the files and the ends."""
        offsets = {} if known is None else dict(known.log_end_offsets)
        files: list[LakeFile] = []
        for info in self._world.storage.buckets(table.path):
            start = max(0, offsets.get(info.bucket, 0))
            if info.log_end_offset > start:
                changes = self._world.storage.read_log(info.bucket, start, info.log_end_offset)
                files += self._files(table, info.bucket.bucket, list(changes))
                offsets[info.bucket] = info.log_end_offset
        return files, offsets

    def _files(self, table: TableInfo, bucket: int, changes: list[Change]) -> list[LakeFile]:
        """Write one bucket. Rows that are replaced at once are in the data file, and deleted in it by position."""
        bucket = self._world.lake.content(str(table.path)).place(bucket)
        location = f"memory://{table.path}/{bucket}/flink-{self._chance.getrandbits(62)}"
        rows = tuple((each.key, each.value or 0) for each in changes if each.value is not None)
        written = [self._file(location, FileRows(bucket, FileContent.DATA, rows))] if rows else []
        if not table.has_primary_key:
            return written
        keys = tuple(dict.fromkeys(each.key for each in changes))
        deletes = self._file(location, FileRows(bucket, FileContent.EQUALITY_DELETES, keys=keys))
        last = {each.key: each.value for each in changes}
        replaced = frozenset(position for position, (key, value) in enumerate(rows) if last[key] != value)
        if replaced:
            version = self._world.lake.content(str(table.path)).format_version
            written += write_deletes(version, self._world.lake.files, bucket, location, {written[0].location: replaced})
        return [deletes, *written]

    def _file(self, location: str, rows: FileRows) -> LakeFile:
        name = f"{location}-{rows.content}"
        self._world.lake.files[name] = rows
        return LakeFile(rows.content, rows.bucket, name, FILE_BYTES, FileMetrics(len(rows.rows)))

    def _commit(self, handle: Handle, files: list[LakeFile], offsets_path: str) -> int:
        lake = self._world.lake
        content = lake.content(handle.name())
        delta: Delta = handle.newTransaction().newRowDelta()
        delta.files += files
        delta.summary |= {"commit-user": COMMIT_USER, "fluss-offsets": offsets_path}
        lake.swap(content, content.head, [delta])
        self.counters["commits of Flink"] += 1
        return delta.snapshot_id
