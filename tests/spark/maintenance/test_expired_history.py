"""Snapshots expire out of a history of rounds, maintenance and user changes. What is left can be read as before."""

from __future__ import annotations

import random
from urllib.parse import urlparse

import pytest
from maintenance_support import compact, expire
from spark_support import Tiering, data_folder, named

from fluss_tiering.lake.iceberg import actions
from fluss_tiering.lake.iceberg.maintenance.rewrites import rewrite_manifests
from fluss_tiering.model.table import TableInfo, WriteKind

KEYS = 30


class History:
    """A lake table on which rounds, maintenance and users work in turn, and the rows of each of its snapshots."""

    def __init__(self, tiering: Tiering, table: TableInfo, seed: int) -> None:
        self._tiering = tiering
        self._table = table
        self._random = random.Random(seed)
        self._name = tiering.name(table)
        self.rows: dict[int, list[tuple[int, str | None]]] = {}

    def step(self, number: int) -> None:
        """Change the lake table in some way."""
        chosen = self._random.choices(
            [self._round, self._compact, self._merge_manifests, self._user_deletes, self._tag], [12, 3, 2, 2, 1]
        )[0]
        chosen(number)
        for snapshot in self._tiering.snapshots(self._table):
            if snapshot.snapshot_id not in self.rows:
                self.rows[snapshot.snapshot_id] = self.read(snapshot.snapshot_id)

    def read(self, snapshot_id: int) -> list[tuple[int, str | None]]:
        """Return the rows of a snapshot."""
        query = f"SELECT id, name FROM {self._name} VERSION AS OF {snapshot_id}"
        return sorted((row.id, row.name) for row in self._tiering.spark.sql(query).collect())

    def _round(self, number: int) -> None:
        self._tiering.write(self._table, named(self._keys(), f"of step {number}"))
        self._tiering.write(self._table, dict.fromkeys(self._keys(3)), WriteKind.DELETE)
        self._tiering.tier(self._table)

    def _compact(self, _number: int) -> None:
        compact(self._tiering, self._table, min_input_files=2)

    def _merge_manifests(self, _number: int) -> None:
        rewrite_manifests(self._tiering.spark, self._tiering.lake_table(self._table).java_table)

    def _user_deletes(self, _number: int) -> None:
        keys = ", ".join(map(str, self._keys(2)))
        self._tiering.spark.sql(f"DELETE FROM {self._name} WHERE id IN ({keys})")

    def _tag(self, number: int) -> None:
        java = self._tiering.lake_table(self._table).java_table
        java.manageSnapshots().createTag(f"t{number}", java.currentSnapshot().snapshotId()).commit()
        java.manageSnapshots().removeTag(f"t{number}").commit()

    def _keys(self, most: int = 8) -> list[int]:
        return self._random.sample(range(KEYS), self._random.randint(1, most))


def on_disk(table: TableInfo) -> set[str]:
    return {str(path) for path in data_folder(table).rglob("*") if path.suffix in {".parquet", ".puffin"}}


def referred(tiering: Tiering, table: TableInfo) -> set[str]:
    """Return the data files and delete files of all snapshots."""
    files = tiering.spark.sql(f"SELECT file_path FROM {tiering.name(table)}.all_files").collect()
    return {urlparse(row.file_path).path for row in files}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "steps", "deletes", "version", "mode"),
    [
        (3, 8, "position", "3", "merge-on-read"),
        pytest.param(1, 16, "position", "2", "merge-on-read", marks=pytest.mark.long),
        pytest.param(2, 16, "equality", "2", "copy-on-write", marks=pytest.mark.long),
        pytest.param(4, 16, "position", "2", "copy-on-write", marks=pytest.mark.long),
        pytest.param(5, 16, "equality", "2", "merge-on-read", marks=pytest.mark.long),
        pytest.param(6, 16, "position", "3", "copy-on-write", marks=pytest.mark.long),
    ],
)
def test_what_is_left_after_snapshots_expire_reads_as_before(
    tiering: Tiering, seed: int, steps: int, deletes: str, version: str, mode: str
) -> None:
    table = tiering.table(
        properties={
            "table.datalake.enabled": "true",
            "table.datalake.delete-files": deletes,
            "iceberg.format-version": version,
            "iceberg.write.delete.mode": mode,
        }
    )
    history = History(tiering, table, seed)
    history._round(0)
    for number in range(1, steps):
        history.step(number)
        if number % 5 == 0:
            expire(tiering, table, retain_last=4)
    left = [snapshot.snapshot_id for snapshot in tiering.snapshots(table)]
    assert len(left) >= 4
    assert {each: history.read(each) for each in left} == {each: history.rows[each] for each in left}
    assert on_disk(table) == referred(tiering, table)


def test_a_snapshot_in_the_middle_of_the_history_expires_alone(tiering: Tiering) -> None:
    table = tiering.table()
    history = History(tiering, table, 1)
    for number in range(4):
        history._round(number)
    rows = {each.snapshot_id: history.read(each.snapshot_id) for each in tiering.snapshots(table)}
    java = tiering.lake_table(table).java_table
    first, second, third, last = (snapshot.snapshot_id for snapshot in tiering.snapshots(table))
    actions.expire(tiering.spark, java, [second])
    assert {each.snapshot_id: history.read(each.snapshot_id) for each in tiering.snapshots(table)} == {
        each: rows[each] for each in (first, third, last)
    }
