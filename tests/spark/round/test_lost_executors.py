"""Executors that are lost in mid-write: no row is lost or doubled, and no commit names a file that nobody sees."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlparse

import pytest
from driver_support import commit_count
from spark_support import Tiering, driver_environment, named, replace_stage

import judges
from fluss_tiering.lake.shared_folder import require_shared
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo
from fluss_tiering.model.tiering import TieringState
from fluss_tiering.spark.round.stage import run_stage
from standalone_support import python_without_engine, standalone_cluster
from waiting import WAIT_S, wait_until

_DRIVER = Path(__file__).parents[1] / "lost_executor_driver.py"

BEFORE = named(range(400), "first")
CHANGED = named(range(300, 700), "second")
DELETED = range(0, 400, 7)
LATER = named(range(650, 900), "third")


class Tables:
    """A log table and a primary-key table of two buckets, in the lake, with changes that are not there yet."""

    def __init__(self, tiering: Tiering) -> None:
        self._tiering = tiering
        self.log = tiering.table(primary_key=False, num_buckets=2)
        self.keyed = tiering.table(num_buckets=2)
        self.every = (self.log, self.keyed)
        self._rows: list[Counter[tuple[int, str | None]]] = []
        self._log: list[tuple[int, str | None]] = []
        self._keyed: dict[int, str | None] = {}
        self._write(BEFORE)
        for table in self.every:
            tiering.tier(table)
        self.tiered()
        self._write(CHANGED)
        tiering.delete(self.keyed, DELETED)
        for key in DELETED:
            self._keyed.pop(key, None)

    def _write(self, rows: dict[int, str]) -> None:
        for table in self.every:
            self._tiering.write(table, rows)
        self._log += rows.items()
        self._keyed |= rows

    def tiered(self) -> None:
        """Note that what was written is now in the lake."""
        self._rows = [Counter(self._log), Counter(self._keyed.items())]

    def check(self, commits: int) -> None:
        """Check what each table has in the lake: every row once, every file once, and the rounds that count."""
        for table, expected in zip(self.every, self._rows, strict=True):
            folder = Path(urlparse(table.lake_catalog_properties["warehouse"]).path, *str(table.path).split("."))
            rows = judges.read(judges.DUCKDB, judges.newest_metadata(folder), columns=["id", "name"]).to_pylist()
            assert Counter((row["id"], row["name"]) for row in rows) == expected
            assert commit_count(self._tiering, table) == commits
            files = self._tiering.files(table)
            assert len(files) == len(set(files))
            registered = self._tiering.client.lake_snapshot(table.path)
            assert registered is not None
            assert registered.snapshot_id == self._tiering.snapshots(table)[-1].snapshot_id

    def check_next_round(self, commits: int) -> None:
        """Check that a round after this one adds what was written since, and nothing else."""
        self._write(LATER)
        for table in self.every:
            self._tiering.tier(table)
        self.tiered()
        self.check(commits)


LOST = {
    "one executor": [["executor"], []],
    "all executors": [["executor"], ["executor"]],
    "one machine": [["worker", "executor", "python"], []],
}


# D17: S10, S7
@pytest.mark.long
@pytest.mark.system
@pytest.mark.parametrize("lost", LOST)
def test_a_round_that_loses_executors_in_mid_write_commits_once(tiering: Tiering, tmp_path: Path, lost: str):
    tables = Tables(tiering)
    with standalone_cluster(tmp_path) as master, started(master, tiering, tmp_path, "hold", *tables.every) as driver:
        held = wait_until(lambda: held_workers(tmp_path, driver))
        assert len({each["executor"] for each in held}) == 2
        for worker, processes in zip(held, LOST[lost], strict=True):
            for name in processes:
                # A worker without its executor ends by itself.
                with suppress(ProcessLookupError):
                    os.kill(worker[name], signal.SIGKILL)
        (tmp_path / "go").touch()
        output, errors = driver.communicate(timeout=WAIT_S)

    assert driver.returncode == 0, errors[-3000:]
    assert {each["status"] for each in json.loads(output)} == {"Tiered"}
    tables.tiered()
    tables.check(commits=2)
    tables.check_next_round(commits=3)


# D17: S10
@pytest.mark.long
@pytest.mark.system
def test_a_round_that_loses_every_executor_fails_and_the_next_one_commits(tiering: Tiering, tmp_path: Path):
    tables = Tables(tiering)
    with standalone_cluster(tmp_path) as master, started(master, tiering, tmp_path, "die", *tables.every) as driver:
        _, errors = driver.communicate(timeout=2 * WAIT_S)

    assert driver.returncode == 1, errors[-3000:]
    tables.check(commits=1)
    for table in tables.every:
        (status,) = tiering.client.list_tiering_statuses(table.path)
        assert status.last_error is not None
        assert status.last_error.startswith("a Spark executor was lost"), status.last_error
        assert status.last_error_time is not None
        assert tiering.rounds(table)[0].state is TieringState.FAILED
    tiering.client.resume_tables([table.path for table in tables.every])
    tables.check_next_round(commits=2)


def started(master: str, tiering: Tiering, folder: Path, what: str, *tables: TableInfo) -> subprocess.Popen[str]:
    """Start a driver on a cluster whose workers stop or die in mid-write."""
    python = python_without_engine(folder)
    return subprocess.Popen(
        [
            *(sys.executable, str(_DRIVER), what, str(folder)),
            *("tier", "--server", tiering.target, "--master", master, "--json"),
            *(str(table.path) for table in tables),
        ],
        env={**driver_environment(), "PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": sys.executable},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def held_workers(folder: Path, driver: subprocess.Popen[str]) -> list[dict[str, int]]:
    """Return the processes of the workers that stopped, when both machines have one."""
    assert driver.poll() is None, driver.communicate()
    held = [json.loads(each.read_text()) for each in sorted(folder.glob("*.held"))]
    return held if len(held) == 2 else []


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


# D48
@pytest.mark.parametrize("primary_key", [True, False])
@pytest.mark.parametrize("harm", [Path.unlink, truncate])
@pytest.mark.sampled(1)
def test_a_file_that_is_not_where_an_executor_wrote_it_is_not_committed(
    tiering: Tiering, monkeypatch: pytest.MonkeyPatch, harm: Callable[[Path], None], primary_key: bool
):
    table = tiering.tiered(named(range(5), "first"), primary_key=primary_key)
    known = tiering.client.lake_snapshot(table.path)
    tiering.write(table, named(range(5, 9), "second"))

    def run(*arguments):
        results = run_stage(*arguments)
        harm(Path(urlparse(results[-1].files[-1].location).path))
        return results

    with monkeypatch.context() as patched:
        replace_stage(patched, run)
        (result,) = tiering.tier_all(table)

    assert "the driver does not see 1 of the files" in result.error
    assert tiering.client.lake_snapshot(table.path) == known
    assert len(tiering.snapshots(table)) == 1
    assert sorted(tiering.files(table)) == tiering.files_on_disk(table), "nothing of the round is left"
    tiering.tier(table)
    assert tiering.lake_rows(table) == sorted({**named(range(5), "first"), **named(range(5, 9), "second")}.items())


# D48
def test_an_executor_must_see_the_folder_that_the_driver_sees(tmp_path: Path):
    for seen in (None, str(tmp_path), f"file:{tmp_path}", f"file://{tmp_path}", "s3://bucket/db/t/metadata"):
        require_shared(seen)
    with pytest.raises(FlussTieringError, match="does not see the lake table's folder") as refused:
        require_shared(f"file:{tmp_path}/metadata")
    assert refused.value.code is ErrorCode.STORAGE
