"""The model of the lake decides as Iceberg does: the same commits and compactions on both have the same ends.

Iceberg reads only metadata for it, so none of the files exists.
"""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass, field
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from fluss_tiering.lake.files import FileContent, FileMetrics, LakeFile, LiveDataFile
from fluss_tiering.lake.iceberg.catalog import IcebergCatalogs
from fluss_tiering.lake.iceberg.commit import IcebergCommitter
from fluss_tiering.lake.iceberg.deletes import live_data_files as iceberg_live_data_files
from fluss_tiering.lake.iceberg.java import is_iceberg, jvm_of
from fluss_tiering.lake.protocol import LakeCommit
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, DataType, TableBucket, TableDescriptor, TableInfo, TablePath
from simulation.compaction import Rewrite, plan_rewrite
from simulation.lake import Handle, ModelLake, NoStatistics, live_data_files
from simulation.lake_files import FILE_BYTES, FileRows, write_deletes
from simulation.scheduler import Process, Scheduler

_COLUMNS = (Column("k", DataType.parse("BIGINT NOT NULL")), Column("v", DataType.parse("BIGINT")))
_PATH = TablePath("db", "t")
_STEPS = 25


@dataclass
class BothLakes:
    """A table of Iceberg's, and the model of it.

    Attributes:
        spark: The session.
        table: The table.
        model: The model of the lake.
        chance: Decides what happens.
        written: The description of each file that any of the two has.
        ends: How often each kind of step had each end.
    """

    spark: Any
    table: TableInfo
    model: ModelLake
    chance: random.Random
    written: dict[str, LakeFile] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)

    def run(self) -> None:
        for _ in range(_STEPS):
            commit, rewrite = self.plan_commit(), self.plan_rewrite()
            steps = [self.land_commit, self.land_rewrite] if self.chance.random() < 0.5 else [self.land_commit]
            self.chance.shuffle(steps)
            for step in steps:
                step(commit if step == self.land_commit else rewrite)
                assert self.live_in_iceberg() == self.live_in_model()

    # Commits of rounds

    def plan_commit(self) -> tuple[Any, Handle, list[LakeFile]]:
        """Open both tables, and write files that a round would commit on top of them."""
        real, handle = self.open(), Handle(self.model, self.content)
        base = None if handle.head is None else handle.head.snapshot_id
        live = sorted(live_data_files(handle, base), key=lambda file: file.location)
        location = f"{real.data_location()}/{uuid.UUID(int=self.chance.getrandbits(128))}"
        files: list[LakeFile] = []
        if self.chance.random() < 0.3:
            files.append(
                self.file(location, FileRows(0, FileContent.EQUALITY_DELETES, keys=(self.chance.randrange(9),)))
            )
        if not live or self.chance.random() < 0.6:
            rows = tuple((self.chance.randrange(9), 0) for _ in range(self.chance.randrange(1, 5)))
            files.append(self.file(location, FileRows(0, FileContent.DATA, rows)))
        touched = self.chance.sample(live, self.chance.randrange(len(live) + 1)) if live else []
        files += [delete for file in touched for delete in self.deletes(location, file)]
        return real, handle, files or [self.file(location, FileRows(0, FileContent.DATA, ((1, 1),)))]

    def deletes(self, location: str, file: LiveDataFile) -> list[LakeFile]:
        present = frozenset(
            p for each in file.deletes for p in self.model.files[each.location].positions[file.location]
        )
        positions = {file.location: present | {self.chance.randrange(file.rows)}}
        name = f"{location}-{self.chance.getrandbits(30)}"
        version = self.content.format_version
        found = write_deletes(version, self.model.files, 0, name, positions, {file.location: file.deletes})
        self.written |= {each.location: each for each in found}
        return found

    def file(self, location: str, rows: FileRows) -> LakeFile:
        name = f"{location}-{rows.content}.parquet"
        self.model.files[name] = rows
        count = len(rows.rows) or len(rows.keys)
        self.written[name] = LakeFile(rows.content, 0, name, FILE_BYTES, FileMetrics(count))
        return self.written[name]

    def land_commit(self, planned: tuple[Any, Handle, list[LakeFile]]) -> None:
        real, handle, files = planned
        base = None if handle.head is None else handle.head.snapshot_id
        content: Any = NoStatistics()
        table: Any = handle
        on_real = self.end_of(IcebergCommitter(real.java_table, "real", real.base(), real._content), files)
        on_model = self.end_of(IcebergCommitter(table, "model", base, content), files)
        self.count("commit", on_real, on_model)

    def end_of(self, committer: IcebergCommitter, files: list[LakeFile]) -> str:
        commit = LakeCommit(1, 1, str(uuid.uuid4()), "/offsets", {TableBucket(1, 0): 1})
        try:
            committer.commit([files], commit)
        except FlussTieringError as error:
            return "refused" if error.code is ErrorCode.LAKE_CONFLICT else error.message
        return "done"

    # Compactions

    def plan_rewrite(self) -> tuple[Any, Rewrite | None]:
        name = f"{self.open().data_location()}/{self.chance.getrandbits(60)}"
        version = self.content.format_version
        return self.open(), plan_rewrite(self.content.files, name, version, self.chance, self.model.new_id)

    def land_rewrite(self, planned: tuple[Any, Rewrite | None]) -> None:
        real, rewrite = planned
        # Iceberg would take a rewrite of deletes in files that are gone, which changes nothing for any reader.
        if rewrite is None or (rewrite.only_deletes and self.content.format_version == 2):
            return
        refused = self.model.counters["compactions refused"]
        self.model.land(self.content.name, rewrite)
        on_model = "refused" if self.model.counters["compactions refused"] > refused else "done"
        self.count("rewrite", self.end_of_rewrite(real, rewrite), on_model)

    def end_of_rewrite(self, real: Any, rewrite: Rewrite) -> str:

        def described(file: LakeFile) -> Any:
            iceberg = jvm_of(self.spark).org.apache.iceberg
            node = iceberg.util.JsonUtil.mapper().readTree(real._content.to_json(file))
            return iceberg.ContentFileParser.fromJson(node, real.java_table.specs())

        update = real.java_table.newRewrite()
        update.validateFromSnapshot(real.base())
        for location, deletes in rewrite.replaced.items():
            gone = [each.file for each in deletes] if rewrite.only_deletes else [self.written[location]]
            for file in gone:
                update.deleteFile(described(file))
        if rewrite.only_deletes:
            for file in self.rewritten_deletes(rewrite):
                update.addFile(described(file))
        elif rewrite.rows:
            self.written[rewrite.location] = LakeFile(
                FileContent.DATA, 0, rewrite.location, FILE_BYTES, FileMetrics(len(rewrite.rows))
            )
            update.addFile(described(self.written[rewrite.location]))
            update.dataSequenceNumber(real.java_table.currentSnapshot().sequenceNumber())
        try:
            update.commit()
        except Py4JJavaError as error:
            return "refused" if is_iceberg(error, "ValidationException") else str(error)
        return "done"

    def rewritten_deletes(self, rewrite: Rewrite) -> list[LakeFile]:
        positions = {
            location: frozenset(p for each in deletes for p in each.positions)
            for location, deletes in rewrite.replaced.items()
        }
        return write_deletes(rewrite.version, {}, 0, rewrite.location, positions)

    # Both

    def count(self, step: str, on_real: str, on_model: str) -> None:
        assert on_real == on_model, f"{step}: Iceberg says {on_real}, the model says {on_model}"
        key = f"{step} {on_real}"
        self.ends[key] = self.ends.get(key, 0) + 1

    def open(self) -> Any:
        return IcebergCatalogs(self.spark).open_table(self.table)

    @property
    def content(self) -> Any:
        return self.model.content(str(_PATH))

    def live_in_iceberg(self) -> list[object]:
        real = self.open()
        return _compared(iceberg_live_data_files(real.java_table, real.base()))

    def live_in_model(self) -> list[object]:
        head = self.content.head
        handle = Handle(self.model, self.content)
        return _compared(live_data_files(handle, None if head is None else head.snapshot_id))


def _compared(files: Any) -> list[object]:
    return sorted(
        (each.location, each.rows, sorted(d.location for d in each.deletes), each.has_equality_deletes)
        for each in files
    )


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("version", [2, 3])
def test_the_model_of_the_lake_decides_as_iceberg_does(spark, tmp_path, version):
    name = f"model_{version}"
    catalog = {"name": name, "type": "hadoop", "warehouse": f"file://{tmp_path}"}
    table = TableInfo(1, _PATH, 1, TableDescriptor(_COLUMNS, ("k",), ("k",), 1), 0, catalog)
    IcebergCatalogs(spark).open_table(table)
    spark.sql(f"ALTER TABLE {name}.db.t SET TBLPROPERTIES ('format-version' = '{version}')")
    chance = random.Random(1)
    scheduler = Scheduler()
    model = ModelLake(scheduler, chance)
    model.faults = 0.0
    model.content(str(_PATH)).format_version = version
    both = BothLakes(spark, table, model, chance)

    scheduler.spawn(Process("test"), both.run)
    scheduler.run(lambda: False)

    assert both.ends.keys() == {"commit done", "commit refused", "rewrite done", "rewrite refused"}, both.ends
