"""Seven days of rounds at a freshness of one minute, with maintenance every hour: what is left, and what it costs.

The days are not waited for. Each round follows the one before at once, and the hours are counted in rounds. As an
application that drains and follows does, the maintenance looks for files that nothing refers to once a day.

The week takes hours. With a folder of its own it may be ended at any time: the next run in this folder goes on after
the last hour that was whole.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np
import psutil

from benchmarks import rows
from benchmarks.control import Figure
from benchmarks.delete_files import duckdb_reader, newest_metadata
from benchmarks.tiering import batches_of, server, session, tier, write
from examples.flights.environment import use_local_jars
from fluss_tiering.model.table import TablePath, WriteKind
from fluss_tiering.spark.maintenance.maintain import Maintenance, maintain_table
from fluss_tiering.spark.maintenance.plan import ALL_STEPS, MaintenanceLimits, Step

ROUNDS: Final = 7 * 24 * 60
ROUNDS_OF_AN_HOUR: Final = 60
_HOURS: Final = 24
KEYS: Final = 1_000_000
CHANGES: Final = 2_000
_BUCKETS: Final = 16
_SNAPSHOT_AGE_MS: Final = str(5 * 24 * 60 * 1000)
"""Five days, which is Iceberg's default, if a round takes a second instead of a minute."""
_PATH: Final = TablePath("bench", "week")
_READS: Final = 3


@dataclass(slots=True)
class _Progress:
    """What the rounds have cost up to the last whole hour, and how many of how many keys they change."""

    rounds: int
    keys: int
    done: int = 0
    wrote_files: int = 0
    most_files: int = 0
    rounds_seconds: float = 0.0
    maintenance_seconds: float = 0.0

    @classmethod
    def of(cls, file: Path, rounds: int, keys: int) -> _Progress:
        """Return what an earlier run left in the file, or the beginning of a week."""
        if not file.exists():
            return cls(rounds, keys)
        found = cls(**json.loads(file.read_text()))
        if (found.rounds, found.keys) != (rounds, keys):
            raise SystemExit(
                f"error: {file.parent} has a week of {found.rounds:,} rounds on {found.keys:,} keys, and not of "
                f"{rounds:,} on {keys:,}. Give the scale of before, or another folder"
            )
        return found

    def save(self, file: Path) -> None:
        """Replace the file in one step, so that an end at any time leaves a whole one."""
        new = file.with_suffix(".new")
        new.write_text(json.dumps(asdict(self)))
        new.replace(file)


def measure(scale: float, folder: Path | None = None) -> Iterator[Figure]:
    """Yield the files that are left, the time of a full read, and the share of the maintenance."""
    rounds, keys = max(2, int(ROUNDS * min(scale, 1))), max(1000, int(KEYS * min(1, scale * 10)))
    hour = min(ROUNDS_OF_AN_HOUR, max(1, rounds // 2))
    use_local_jars()
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="fluss-tiering-week-")
        if folder is None
        else nullcontext(str(folder)) as used,
        server(Path(used)) as (target, client),
        session() as spark,
    ):
        file = Path(used, "progress.json")
        progress = _Progress.of(file, rounds, keys)
        if not file.exists():
            options = {
                "table.datalake.delete-files": "position",
                "iceberg.history.expire.max-snapshot-age-ms": _SNAPSHOT_AGE_MS,
            }
            descriptor = rows.descriptor(primary_key=True, num_buckets=_BUCKETS, options=options)
            client.create_table(_PATH, descriptor)
            write(client, _PATH, WriteKind.UPSERT, rows.batches(0, keys))
            tier(target, spark, _PATH)
            progress.save(file)
        (table,) = client.get_tables([_PATH])
        processes = _Processes()

        def maintain(steps: Collection[Step], limits: MaintenanceLimits | None = None) -> Maintenance:
            done = maintain_table(client, spark, table, steps=steps, limits=limits)
            if done.error is not None:
                raise SystemExit(f"error: maintenance failed: {done.error}")
            return done

        for number in range(progress.done + 1, rounds + 1):
            changed = np.random.default_rng([1, number]).choice(keys, min(CHANGES, keys // 2), replace=False)
            write(client, _PATH, WriteKind.UPSERT, batches_of(changed))
            before = processes.cpu_seconds()
            progress.wrote_files += tier(target, spark, _PATH).stats.files
            progress.rounds_seconds += processes.cpu_seconds() - before
            if number % hour == 0 or number == rounds:
                before = processes.cpu_seconds()
                done = maintain(ALL_STEPS if number % (_HOURS * hour) == 0 else ALL_STEPS - {Step.CLEAN})
                progress.maintenance_seconds += processes.cpu_seconds() - before
                if done.plan is not None:
                    files = done.plan.files
                    progress.most_files = max(progress.most_files, files.data_files + files.delete_files)
                progress.done = number
                progress.save(file)
        newest = newest_metadata(client, _PATH)
        left = _files(newest)
        worn = _read_seconds(newest)
        maintain(ALL_STEPS, MaintenanceLimits(min_input_files=2, delete_files=1))
        fresh = newest_metadata(client, _PATH)
        ideal, best = _files(fresh), _read_seconds(fresh)
    text = (
        f"{left} of {progress.wrote_files:,} that rounds wrote, at most {progress.most_files:,}; "
        f"freshly compacted {ideal}"
    )
    yield Figure(f"files after {rounds:,} rounds of {CHANGES:,} changes", text, "<= 2x", left <= 2 * ideal)
    yield Figure(
        "a full read by DuckDB", f"{worn:.2f} s / {best:.2f} s = {worn / best:.2f}", "<= 1.1x", worn <= 1.1 * best
    )
    share = progress.maintenance_seconds / progress.rounds_seconds
    text = f"{progress.maintenance_seconds:.0f} s / {progress.rounds_seconds:.0f} s = {share:.0%}"
    yield Figure("CPU of maintenance, of that of the rounds", text, "<= 10 %", share <= 0.1)


def _files(metadata: str) -> int:
    table = json.loads(Path(metadata).read_text())
    (newest,) = [each for each in table["snapshots"] if each["snapshot-id"] == table["current-snapshot-id"]]
    return sum(int(newest["summary"][f"total-{kind}-files"]) for kind in ("data", "delete"))


def _read_seconds(metadata: str) -> float:
    read = duckdb_reader()
    best = float("inf")
    for _ in range(_READS):
        began = time.perf_counter()
        read(metadata)
        best = min(best, time.perf_counter() - began)
    return best


class _Processes:
    """This process, its JVM, the workers and the server, with those that have ended.

    Spark ends workers that are idle for a minute, and nobody adds up what they took.
    """

    def __init__(self) -> None:
        self._seconds: dict[tuple[int, float], float] = {}

    def cpu_seconds(self) -> float:
        """Return the CPU time of all processes that were there at this call or an earlier one."""
        for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                self._seconds[process.pid, process.create_time()] = times.user + times.system
        return sum(self._seconds.values())
