"""Whole rounds in one process: a real server, storage and files, and a lake in plain Python instead of Iceberg.

They show what a round leaves in the lake and with the server, and what it tells of itself, without a JVM.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from plain_lake import PlainLake
from py4j.protocol import Py4JNetworkError

from engine_support import SCHEMA, ServerThread, descriptor
from fluss_tiering.client import TieringClient, lease_latest_snapshots
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.lake.protocol import LakeCommit
from fluss_tiering.model.closing import Closing
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, DataType, TableBucket, TableDescriptor, TableInfo, TablePath, WriteKind
from fluss_tiering.model.tiering import TieringState
from fluss_tiering.spark.application import exit_code
from fluss_tiering.spark.round import round as round_module
from fluss_tiering.spark.round.commit import missing_lake_table
from fluss_tiering.spark.round.keepalive import KeepAlive, RoundGuard
from fluss_tiering.spark.round.lease import Lease, Releaser, TableLease, open_lease, pinned_by_table
from fluss_tiering.spark.round.pieces import StageJob
from fluss_tiering.spark.round.plan import LogPiece, PlanLimits
from fluss_tiering.spark.round.result import PieceResult, TableResult
from fluss_tiering.spark.round.round import RoundServices
from fluss_tiering.spark.runtime import Event, Runtime
from fluss_tiering.spark.table_run import TableRun

_NUMBERS = itertools.count(1)
LEASE_MS = 600_000
GONE = FlussTieringError(ErrorCode.FENCED_TIERING_EPOCH, "superseded")
Rows = Mapping[int, str | None]
TIERED = TableResult(TablePath("db", "t"), TieringState.TIERED, 1.0, recorded=True)
FAILED = TableResult(TablePath("db", "t"), TieringState.FAILED, 1.0, recorded=True)
INTERRUPTED = replace(FAILED, interrupted=True)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    folder = tmp_path_factory.mktemp("rounds") / "data"
    with ServerThread(folder, lake_catalog={"type": "hadoop"}) as running:
        yield running


@pytest.fixture
def client(server: ServerThread) -> Iterator[TieringClient]:
    with TieringClient(server.target) as connected:
        yield connected


@dataclass
class Told(Closing):
    """`Progress` that keeps what it hears."""

    steps: list[str] = field(default_factory=list)
    stages: list[tuple[str, int]] = field(default_factory=list)
    results: list[TableResult] = field(default_factory=list)

    def close(self) -> None:
        return

    def step(self, path: TablePath, what: str) -> None:
        self.steps.append(f"{path}: {what}")

    def stage(self, path: TablePath, group: str, tasks: int) -> None:
        self.stages.append((f"{path}: {group}", tasks))

    def done(self, result: TableResult) -> None:
        self.results.append(result)


@dataclass
class Application:
    """An application that runs the stages of its rounds in its own process, on a clock that tests move."""

    client: TieringClient
    target: str
    lake: PlainLake
    now: float = 5000.0
    told: Told = field(default_factory=Told)
    jobs: list[tuple[StageJob, str]] = field(default_factory=list)
    written: list[PieceResult] = field(default_factory=list)
    on_stage: Callable[[StageJob, RoundGuard], None] = lambda job, guard: None
    cancelled: list[str] = field(default_factory=list)
    stopped: Event = field(default_factory=Runtime().new_event)
    spark_ended: bool = False

    def table(self, *, key: bool = True, num_buckets: int = 1, **options: Any) -> TableInfo:
        path = TablePath("db", f"r{next(_NUMBERS)}")
        return self.client.create_table(path, descriptor(primary_key=key, num_buckets=num_buckets, **options))

    def write(self, table: TableInfo, rows: Rows, kind: WriteKind | None = None) -> None:
        kind = kind or (WriteKind.UPSERT if table.has_primary_key else WriteKind.APPEND)
        batch = pa.table({"id": list(rows), "name": list(rows.values())}, schema=SCHEMA)
        assert sum(self.client.write_rows(table.path, kind, [batch])) == len(rows)

    def rows(self, table: TableInfo) -> list[tuple[int, str | None]]:
        return [(row["id"], row["name"]) for row in self.lake.rows(table)]

    def ends(self, table: TableInfo) -> dict[TableBucket, int]:
        """Return the ends of the logs, which a round reads up to."""
        return {
            each.bucket: each.log_end_offset
            for each in self.client.list_buckets([table.path])[table.path]
            if each.log_end_offset
        }

    def _run_stage(self, spark: object, job: StageJob, group: str, guard: RoundGuard) -> list[PieceResult]:
        self.jobs.append((job, group))
        self.on_stage(job, guard)
        guard.check()
        results = list(job(range(len(job.work))))
        self.written += results
        return results

    def services(self, **settings: Any) -> RoundServices:
        known: dict[str, Any] = {
            "client": self.client,
            "spark": None,
            "catalog": self.lake,
            "storage": self.client.describe_storage(),
            "target": self.target,
            "limits": PlanLimits(),
            "progress": self.told,
            "runtime": replace(Runtime(), monotonic=lambda: self.now),
            "run_stage": self._run_stage,
            "cancel_stage": lambda spark, group: self.cancelled.append(group),
        }
        return RoundServices(**{**known, **settings})

    def run(self, table: TableInfo, **settings: Any) -> TableResult:
        """Run a round, whatever becomes of it."""
        self.told = replace(Told())
        self.jobs.clear()
        self.written.clear()
        table = self.client.get_tables([table.path])[0]
        lease = open_lease(self.client, [table.path], lease_id=None, attempt_token=None, duration_ms=LEASE_MS)
        with Releaser(self.client) as releaser, KeepAlive(self.client, LEASE_MS) as keepalive:
            held = TableLease(self.client, keepalive, lease, table)
            held.hold(set(lease.pinned.get(table.table_id, ())))
            run = TableRun(
                self.services(**settings),
                lease,
                keepalive=keepalive,
                releaser=releaser,
                claim_timeout_s=5,
                driver="test",
                stopped=self.stopped,
                spark_ended=lambda: self.spark_ended,
            )
            result = run.tier(table, held)
        assert self.client.list_leases(lease.lease_id) == [], "everything is released"
        return result

    def tier(self, table: TableInfo, **settings: Any) -> TableResult:
        """Run a round that must not fail."""
        result = self.run(table, **settings)
        assert result.error is None, result.error
        return result

    def fail(self, table: TableInfo, **settings: Any) -> str:
        """Run a round that must fail, and let the table be claimed again at once."""
        result = self.run(table, **settings)
        assert result.error is not None
        assert result.state is TieringState.FAILED
        self.client.resume_tables([table.path])
        return result.error


@pytest.fixture
def application(client: TieringClient, server: ServerThread, tmp_path: Path) -> Application:
    return Application(client, server.target, PlainLake(tmp_path / "lake"))


def named(keys: Sequence[int], name: str) -> dict[int, str | None]:
    return {key: f"{name} {key}" for key in keys}


# What is in the lake


def test_each_row_of_a_log_is_tiered_once(application: Application):  # L1
    table = application.table(key=False, num_buckets=3)
    expected: dict[int, str | None] = {}
    for start in (0, 20, 40):
        rows = named(range(start, start + 20), "row")
        application.write(table, rows)
        expected |= rows
        result = application.tier(table)
        assert application.rows(table) == sorted(expected.items())
        assert result.stats.rows == 20
        known = application.client.lake_snapshot(table.path)
        assert known is not None
        assert (known.snapshot_id, dict(known.log_end_offsets)) == (
            result.stats.lake_snapshot_id,
            application.ends(table),
        )


def test_the_lake_holds_the_last_row_of_each_key(application: Application):
    table = application.table(num_buckets=2)
    expected = named(range(30), "first")
    application.write(table, expected)
    application.client.take_kv_snapshots([table.path])
    application.write(table, named(range(5), "second"))
    application.write(table, named([3], "third"))
    expected |= named(range(5), "second") | named([3], "third")
    application.tier(table)
    assert application.rows(table) == sorted(expected.items())

    application.write(table, named([1, 99], "later"))
    application.write(table, dict.fromkeys([2, 3]), WriteKind.DELETE)
    application.tier(table)
    expected |= named([1, 99], "later")
    del expected[2], expected[3]
    assert application.rows(table) == sorted(expected.items())


def test_a_table_without_anything_new_is_not_committed(application: Application):
    table = application.table()
    application.write(table, named(range(3), "row"))
    first = application.tier(table)

    def never() -> int:
        raise AssertionError("an empty round waits for no executors")

    application.now += 0.25
    again = application.tier(table, parallelism=never)
    assert again.stats.lake_snapshot_id is None
    assert (again.stats.rows, again.stats.files, again.complete) == (0, 0, True)
    assert application.told.steps == [f"{table.path}: claiming", f"{table.path}: planning"]
    assert not application.jobs
    known = application.client.lake_snapshot(table.path)
    assert known is not None
    assert known.snapshot_id == first.stats.lake_snapshot_id


DAYS = TableDescriptor(
    (
        Column("id", DataType.parse("BIGINT NOT NULL")),
        Column("day", DataType.parse("STRING NOT NULL")),
        Column("name", DataType.parse("STRING")),
    ),
    ("id", "day"),
    ("id",),
    2,
    {"table.datalake.enabled": "true"},
    partition_keys=("day",),
)


def write_day(application: Application, table: TableInfo, day: str, rows: Rows) -> None:
    columns = {"id": list(rows), "day": [day] * len(rows), "name": list(rows.values())}
    batch = pa.table(columns, schema=arrow_schema(DAYS.columns))
    assert sum(application.client.write_rows(table.path, WriteKind.UPSERT, [batch])) == len(rows)


def of_day(application: Application, table: TableInfo, day: str) -> list[tuple[int, str | None]]:
    return [(row["id"], row["name"]) for row in application.lake.rows(table) if row["day"] == day]


def test_a_partition_that_is_made_again_replaces_the_rows_of_the_one_before(application: Application):
    table = application.client.create_table(TablePath("db", f"r{next(_NUMBERS)}"), DAYS)
    for day in ("mon", "tue"):
        write_day(application, table, day, named(range(10), day))
    application.tier(table)
    application.client.drop_partition(table.path, ["mon"])
    write_day(application, table, "mon", named(range(3, 8), "new"))
    write_day(application, table, "tue", named([4], "later"))
    write_day(application, table, "wed", named([1, 2], "wed"))
    application.tier(table)

    found = dict(of_day(application, table, "mon"))
    assert {key: found[key] for key in range(3, 8)} == named(range(3, 8), "new")
    assert len(of_day(application, table, "mon")) == len(found), "no key is twice in the lake"
    assert of_day(application, table, "tue") == sorted((named(range(10), "tue") | named([4], "later")).items())
    assert of_day(application, table, "wed") == sorted(named([1, 2], "wed").items())
    # Rows of a partition that is new to the lake need no deletes.
    newest = application.lake.tables[str(table.path)][-1]
    deleting = {file.partition_values for file in newest.files if "-deletes-" in file.location}
    assert deleting == {("mon",), ("tue",)}


# What a round tells of itself


def test_a_round_tells_what_it_wrote_and_what_it_cost(application: Application, monkeypatch):
    table = application.table(num_buckets=4)
    application.write(table, named(range(40), "row"))

    def after(seconds: float) -> None:
        application.now += seconds

    find = PlainLake.open_table
    monkeypatch.setattr(PlainLake, "open_table", lambda lake, of: (after(2), find(lake, of))[1])
    application.on_stage = lambda job, guard: after(30)
    application.lake.before_commit = lambda: after(7)
    result = application.tier(table)

    files = application.lake.tables[str(table.path)][-1].files
    size = sum(file.size_bytes for file in files)
    assert (result.stats.rows, result.stats.files, result.stats.bytes) == (40, len(files), size)
    assert (result.stats.lake_file_size, result.stats.lake_record_count) == (size, 40)
    assert (result.cost.plan, result.cost.stage, result.cost.commit) == (2, 30, 7)
    assert result.seconds == 39
    workers = [piece.seconds for piece in application.written]
    assert result.cost.workers.read == pytest.approx(sum(each.read for each in workers))
    assert result.cost.workers.decode == pytest.approx(sum(each.decode for each in workers))
    assert result.cost.workers.encode == pytest.approx(sum(each.encode for each in workers))
    assert result.cost.peak_worker_bytes == max(piece.peak_bytes for piece in application.written)
    assert application.told.steps == [f"{table.path}: {step}" for step in ("claiming", "planning", "committing")]
    ((job, group),) = application.jobs
    assert group.startswith(f"fluss-tiering-{table.table_id}-{result.epoch}-")
    assert application.told.stages == [(f"{table.path}: {group}", job.tasks)]
    assert application.told.results == [result]

    application.write(table, named(range(10, 30), "changed"))
    changed = application.tier(table)
    assert changed.cost.workers.reduce == pytest.approx(sum(piece.seconds.reduce for piece in application.written))
    assert changed.stats.rows == 20
    assert changed.stats.lake_record_count == 40
    assert changed.stats.lake_file_size == size + changed.stats.bytes


def test_all_cores_get_work_and_small_pieces_share_a_task(application: Application):
    table = application.table(num_buckets=6)
    application.write(table, named(range(200), "row"))
    application.tier(table, parallelism=lambda: 4, buffer_bytes=12345)
    ((job, _),) = application.jobs
    assert (len(job.work), job.tasks, job.buffer_bytes) == (6, 4, 12345)
    assert application.told.stages[0][1] == 4


def test_the_plan_and_the_jobs_go_by_the_same_number_of_cores(application: Application):
    table = application.table(num_buckets=6)
    application.write(table, named(range(200), "row"))
    answers = iter([4, 1])
    application.tier(table, parallelism=lambda: next(answers))
    assert [job.tasks for job, _ in application.jobs] == [4]
    assert list(answers) == [1], "executors that come in mid-round do not change it"


def test_files_are_named_by_their_round_and_no_two_pieces_share_a_name(application: Application, monkeypatch):
    monkeypatch.setattr(round_module, "_MAX_PIECES_IN_JOB", 2)
    table = application.table(num_buckets=5)
    application.write(table, named(range(200), "row"))
    result = application.tier(table)

    assert [len(job.work) for job, _ in application.jobs] == [2, 2, 1], "the driver holds two results at once"
    assert application.told.stages[0][1] == sum(job.tasks for job, _ in application.jobs)
    names = sorted(application.lake.files_on_disk())
    assert [name[:8] for name in names] == [f"{number:05d}-e{result.epoch}" for number in range(5)]
    (attempt,) = {name[len(f"00000-e{result.epoch}-") :][:36] for name in names}
    assert str(uuid.UUID(attempt)) == attempt
    assert application.rows(table) == sorted(named(range(200), "row").items())
    # The driver keeps thousands of files in mind, and Iceberg's description of each is packed.
    assert {file.packed for file in application.lake.tables[str(table.path)][-1].files} == {b"packed"}


# Limits


def test_a_round_stops_when_its_time_is_over_and_the_next_one_goes_on(application: Application):
    table = application.table(key=False)
    for start in range(0, 40, 10):
        application.write(table, named(range(start, start + 10), "row"))
    limits = PlanLimits(append_piece_bytes=1, wave_bytes=1)
    application.on_stage = lambda job, guard: setattr(application, "now", application.now + 20)

    result = application.tier(table, limits=limits, max_round_duration="60s")

    read = application.rows(table)
    assert len(application.jobs) == 3, "a wave that begins within the time is read to its end"
    assert result.complete is False
    assert 0 < len(read) < 40
    assert read == sorted(named(range(len(read)), "row").items())
    known = application.client.lake_snapshot(table.path)
    assert known is not None
    assert list(known.log_end_offsets.values()) == [len(read)]
    application.on_stage = lambda job, guard: None
    assert application.tier(table, limits=limits).complete
    assert application.rows(table) == sorted(named(range(40), "row").items())


def test_without_a_limit_all_is_read_at_once(application: Application):
    table = application.table(key=False)
    for start in range(0, 40, 10):
        application.write(table, named(range(start, start + 10), "row"))
    application.on_stage = lambda job, guard: setattr(application, "now", application.now + 10_000)
    assert application.tier(table, limits=PlanLimits(append_piece_bytes=1, wave_bytes=1)).complete
    assert len(application.jobs) == 1


# Faults


def test_a_commit_that_was_not_registered_is_registered_by_the_next_round(application: Application, monkeypatch):
    table = application.table()
    application.write(table, named(range(4), "first"))

    def lost(*_: object, **__: object) -> None:
        raise FlussTieringError(ErrorCode.UNAVAILABLE, "the server is away")

    with monkeypatch.context() as patched:
        patched.setattr(TieringClient, "commit_lake_snapshot", lost)
        assert application.fail(table) == "the server is away"
    assert application.client.lake_snapshot(table.path) is None
    (committed,) = application.lake.tables[str(table.path)]
    assert committed.commit is not None
    uuid.UUID(committed.commit.commit_id)
    assert (committed.commit.table_id, dict(committed.commit.log_end_offsets)) == (
        table.table_id,
        application.ends(table),
    )
    application.write(table, named(range(2, 6), "second"))
    again = application.tier(table)

    assert again.stats.rows == 4, "what the lake has is not read again"
    assert application.rows(table) == sorted((named(range(4), "first") | named(range(2, 6), "second")).items())


def test_of_a_commit_that_was_registered_nothing_is_registered_again(application: Application, monkeypatch):
    table = application.table()
    application.write(table, named(range(4), "first"))
    application.tier(table)
    registered: list[object] = []
    monkeypatch.setattr(TieringClient, "commit_lake_snapshot", lambda *arguments: registered.append(arguments))
    application.tier(table)
    assert registered == []


def test_a_lake_table_that_is_gone_is_not_made_again(application: Application):  # D45
    table = application.table()
    application.write(table, named(range(4), "first"))
    first = application.tier(table)
    application.lake.tables.clear()
    error = application.fail(table)
    assert f"committed its snapshot {first.stats.lake_snapshot_id}" in error
    assert str(table.path) in error
    assert application.lake.tables == {}
    known = application.client.lake_snapshot(table.path)
    assert known is not None
    assert missing_lake_table(table, known).code is ErrorCode.LAKE_TABLE_MISMATCH


def test_what_somebody_else_did_to_the_lake_during_the_round_is_kept(application: Application):
    table = application.table(key=False)
    application.write(table, named(range(4), "first"))
    application.tier(table)
    before = application.lake.files_on_disk()
    application.write(table, named(range(4, 8), "second"))
    theirs = {(0, ()): [{"id": 99, "name": "theirs", "__offset": 0}]}
    application.lake.before_commit = lambda: cast("None", application.lake.add(table, None, theirs))
    assert "changed by somebody else" in application.fail(table)
    assert application.rows(table) == [(99, "theirs")]
    assert application.lake.files_on_disk() == before
    application.lake.before_commit = lambda: None
    application.tier(table)
    assert application.rows(table) == [*named(range(4, 8), "second").items(), (99, "theirs")]


@pytest.mark.parametrize("job", [0, 1, 2], ids=["first job", "second job", "after the last job"])
def test_a_round_that_is_lost_leaves_no_files(application: Application, monkeypatch, job: int):
    monkeypatch.setattr(round_module, "_MAX_PIECES_IN_JOB", 2)
    table = application.table(num_buckets=4)
    application.write(table, named(range(100), "row"))
    done = StageJob.__call__

    def lose(stage: StageJob, guard: RoundGuard) -> None:
        if len(application.jobs) == job + 1:
            guard.lose(GONE)

    def lose_at_the_end(stage: StageJob, numbers: Sequence[int]) -> Iterator[PieceResult]:
        yield from done(stage, numbers)
        if len(application.jobs) == job:
            guards[0].lose(GONE)

    guards: list[RoundGuard] = []
    application.on_stage = lose if job < 2 else lambda stage, guard: guards.append(guard)
    if job == 2:
        monkeypatch.setattr(StageJob, "__call__", lose_at_the_end)
    assert application.fail(table) == "superseded"
    assert application.lake.files_on_disk() == set()
    assert application.lake.tables[str(table.path)] == []
    assert len(application.jobs) == min(job + 1, 2)
    assert application.cancelled == [application.jobs[0][1]], "the stage is cancelled once"


def test_a_round_that_another_one_replaced_is_refused_before_the_lake_changes(application: Application, monkeypatch):
    table = application.table(key=False)
    application.write(table, named(range(4), "row"))

    def superseded(*_: object) -> str:
        raise GONE

    monkeypatch.setattr(TieringClient, "prepare_lake_snapshot", superseded)
    assert application.fail(table) == "superseded"
    assert application.lake.files_on_disk() == set()
    assert application.lake.tables[str(table.path)] == []


# What is the table's fault, and what is not


@pytest.mark.parametrize(
    ("failure", "interrupted"),
    [
        (FlussTieringError(ErrorCode.STORAGE, "the lake is full"), False),
        (FlussTieringError(ErrorCode.UNKNOWN, "a Spark executor was lost"), False),
        (ValueError("a wrong value"), False),
        (FlussTieringError(ErrorCode.STALE_ATTEMPT, "a newer attempt began"), True),
        (FlussTieringError(ErrorCode.KV_SNAPSHOT_LEASE_NOT_EXIST, "the lease expired"), True),
        (Py4JNetworkError("Answer from Java side is empty"), True),
    ],
    ids=str,
)
def test_a_round_tells_whether_its_table_is_to_blame(  # D64
    application: Application, failure: Exception, interrupted: bool
):
    table = application.table(key=False)
    application.write(table, named(range(4), "row"))

    def fail(stage: StageJob, guard: RoundGuard) -> None:
        raise failure

    application.on_stage = fail
    result = application.run(table)
    assert (result.failed, result.interrupted, result.recorded) == (True, interrupted, True)
    (ended,) = application.client.list_tiering_rounds(table.path)
    assert (ended.state, ended.interrupted, ended.error) == (TieringState.FAILED, interrupted, result.error)
    (status,) = application.client.list_tiering_statuses(table.path)
    assert status.consecutive_failures == (0 if interrupted else 1)


@pytest.mark.parametrize("told", ["stopped", "Spark ended", "lost"])
def test_a_round_that_is_stopped_gives_that_as_its_reason(application: Application, told: str):  # D64
    """Its calls fail in some way that says nothing of it."""
    table = application.table(key=False)
    application.write(table, named(range(4), "row"))

    def stop(stage: StageJob, guard: RoundGuard) -> None:
        if told == "stopped":
            application.stopped.set()
        elif told == "Spark ended":
            application.spark_ended = True
        else:
            guard.lose(FlussTieringError(ErrorCode.KV_SNAPSHOT_LEASE_NOT_EXIST, "the lease expired"))
        raise FlussTieringError(ErrorCode.STORAGE, "the lake was closed")

    application.on_stage = stop
    result = application.run(table)
    assert result.interrupted
    assert result.error is not None
    reasons = {"stopped": "told to stop", "Spark ended": "Spark has ended by itself", "lost": "the lease expired"}
    assert reasons[told] in result.error
    assert application.stopped.is_set() is (told != "lost"), "no round begins any more"


def test_a_round_that_may_not_begin_is_interrupted(application: Application):  # D64
    table = application.table(key=False)
    application.write(table, named(range(4), "row"))
    for told, names in ((True, "Spark has ended"), (False, "told to stop")):
        application.spark_ended = told
        result = application.run(table)
        assert result.interrupted
        assert names in (result.error or "")
        application.stopped.set()
    assert application.client.list_tiering_rounds(table.path) == []


@pytest.mark.parametrize(
    ("results", "code", "with_status"),
    [
        ([TIERED], 0, 0),
        ([], 0, 0),
        ([TIERED, FAILED], 1, 0),
        ([TIERED, replace(FAILED, recorded=False)], 1, 1),
        ([TIERED, INTERRUPTED], 3, 3),
        ([INTERRUPTED, FAILED], 1, 3),
        ([INTERRUPTED, replace(FAILED, recorded=False)], 1, 1),
    ],
)
def test_the_exit_code_tells_a_failure_from_an_interruption(  # D66
    results: Sequence[TableResult], code: int, with_status: int
):
    assert exit_code(results, outcome_in_status=False) == code
    assert exit_code(results, outcome_in_status=True) == with_status


# Leases


def lease_of(client: TieringClient, tables: Sequence[TableInfo], **given: Any) -> Lease:
    options = {"lease_id": None, "attempt_token": None, "duration_ms": LEASE_MS, **given}
    return open_lease(client, [table.path for table in tables], **options)


def snapshots_of(application: Application, table: TableInfo, lease: Lease) -> tuple[dict[TableBucket, int], set[str]]:
    """Return what a round of the table reads, and the leases that it made for it."""
    keepalive = KeepAlive(application.client, LEASE_MS)
    held = TableLease(application.client, keepalive, lease, table)
    claim = SimpleNamespace(table_id=table.table_id, tiering_epoch=7, path=table.path)
    before = {each.lease_id for each in application.client.list_leases()}
    found = held.snapshots(cast("Any", claim), application.client.list_buckets([table.path])[table.path])
    made = {each.lease_id for each in application.client.list_leases()} - before
    with Releaser(application.client) as releaser:
        held.release(releaser)
    assert {each.lease_id for each in application.client.list_leases()} == before, "the round's own lease is released"
    return {bucket: snapshot.snapshot_id for bucket, snapshot in found.items()}, made


def pinned(application: Application, table: TableInfo, lease_id: str) -> Mapping[TableBucket, int]:
    return pinned_by_table(application.client, lease_id).get(table.table_id, {})


def two_tables(application: Application) -> tuple[TableInfo, TableInfo]:
    tables = application.table(num_buckets=2), application.table()
    for table in tables:
        application.write(table, named(range(20), "row"))
    return tables


def test_one_lease_pins_the_snapshots_of_all_tables(application: Application):  # L1
    first, second = two_tables(application)
    lease = lease_of(application.client, [first, second])
    assert lease.lease_id.startswith("fluss-tiering-")
    assert lease.served
    assert lease.duration_ms == LEASE_MS
    assert lease.attempt_token is not None
    assert set(lease.pinned) == {first.table_id, second.table_id}
    for table in (first, second):
        assert set(lease.pinned[table.table_id]) == set(application.ends(table))
        assert snapshots_of(application, table, lease) == (lease.pinned[table.table_id], set())


def test_a_lease_that_was_given_is_used_as_it_is(application: Application):
    first, second = two_tables(application)
    acquired = lease_latest_snapshots(application.client, "given", [first.path], LEASE_MS)
    lease = lease_of(application.client, [first, second], lease_id="given", attempt_token=acquired.attempt_token)
    assert (lease.lease_id, lease.attempt_token) == ("given", acquired.attempt_token)
    assert set(lease.pinned) == {first.table_id}, "nothing is acquired under an id that somebody else holds"
    assert snapshots_of(application, first, lease) == (lease.pinned[first.table_id], set())
    found, made = snapshots_of(application, second, lease)
    assert set(found) == set(application.ends(second))
    assert made == {f"given/{second.table_id}.7"}


def test_a_round_leases_what_an_expired_lease_no_longer_pins(application: Application):
    (table, _) = two_tables(application)
    lease = lease_of(application.client, [table])
    application.client.drop_lease(lease.lease_id)
    found, made = snapshots_of(application, table, lease)
    assert set(found) == set(application.ends(table))
    assert made == {f"{lease.lease_id}/{table.table_id}.7"}


def test_a_table_without_rows_needs_no_lease(application: Application):
    table = application.table()
    lease = lease_of(application.client, [table])
    assert snapshots_of(application, table, lease) == ({}, set())


def test_a_snapshot_that_is_gone_is_replaced_by_a_newer_one(application: Application, monkeypatch):
    (table, _) = two_tables(application)
    lease = lease_of(application.client, [table])
    metadata = TieringClient.kv_snapshot_metadata
    asked: list[object] = []

    def gone_at_first(client: TieringClient, snapshots: Any) -> Any:
        asked.append(snapshots)
        if len(asked) == 1:
            raise FlussTieringError(ErrorCode.KV_SNAPSHOT_NOT_EXIST, "gone")
        return metadata(client, snapshots)

    monkeypatch.setattr(TieringClient, "kv_snapshot_metadata", gone_at_first)
    found, made = snapshots_of(application, table, lease)
    assert set(found) == set(application.ends(table))
    assert made == {f"{lease.lease_id}/{table.table_id}.7"}


@pytest.mark.parametrize("code", [ErrorCode.UNAVAILABLE, ErrorCode.STORAGE])
def test_another_failure_ends_the_round(application: Application, monkeypatch, code: ErrorCode):
    (table, _) = two_tables(application)
    lease = lease_of(application.client, [table])

    def broken(*_: object) -> None:
        raise FlussTieringError(code, "broken")

    monkeypatch.setattr(TieringClient, "kv_snapshot_metadata", broken)
    with pytest.raises(FlussTieringError, match="broken"):
        snapshots_of(application, table, lease)


@pytest.mark.parametrize(
    ("code", "served", "refused"),
    [
        (ErrorCode.UNSUPPORTED_VERSION, False, False),
        (ErrorCode.KV_SNAPSHOT_NOT_EXIST, True, False),
        (ErrorCode.UNAVAILABLE, True, True),
    ],
)
def test_a_server_that_grants_no_lease(application: Application, monkeypatch, code, served, refused):
    (table, _) = two_tables(application)
    application.client.take_kv_snapshots([table.path])

    def refuse(*_: object, **__: object) -> None:
        raise FlussTieringError(code, "refused")

    with monkeypatch.context() as patched:
        patched.setattr("fluss_tiering.spark.round.lease.lease_latest_snapshots", refuse)
        if refused:
            with pytest.raises(FlussTieringError, match="refused"):
                lease_of(application.client, [table])
            return
        lease = lease_of(application.client, [table])
    assert (lease.served, lease.pinned, lease.attempt_token, lease.duration_ms) == (served, {}, None, LEASE_MS)
    found, made = snapshots_of(application, table, lease)
    assert set(found) == set(application.ends(table))
    assert len(made) == (1 if served else 0), "without leases the latest snapshots are read"


def test_what_cannot_be_released_stays_pinned_until_the_lease_expires(application: Application, monkeypatch, caplog):
    (table, _) = two_tables(application)
    lease = lease_of(application.client, [table])
    buckets = set(lease.pinned[table.table_id])

    def refused(*_: object, **__: object) -> None:
        raise FlussTieringError(ErrorCode.UNAVAILABLE, "away")

    with monkeypatch.context() as patched, Releaser(application.client, close_timeout_s=0.1) as releaser:
        patched.setattr(TieringClient, "release_lease", refused)
        releaser.release(lease.lease_id, buckets, lease.attempt_token)
    assert f"lease {lease.lease_id} keeps {len(buckets)} buckets until it expires" in caplog.text
    assert set(pinned(application, table, lease.lease_id)) == buckets
    with Releaser(application.client) as releaser:
        for bucket in buckets:
            releaser.release(lease.lease_id, {bucket}, lease.attempt_token)
    assert not pinned(application, table, lease.lease_id)


def test_a_later_piece_of_a_bucket_replaces_the_rows_of_an_earlier_one(application: Application):
    table = application.table()
    application.write(table, {1: "first"})
    application.tier(table)
    for number in range(6):
        application.write(table, {1: f"version {number}", 10 + number: "other"})
    application.tier(table, limits=PlanLimits(change_piece_bytes=1))
    ((job, _),) = application.jobs
    assert len({work.piece.ordinal for work in job.work if isinstance(work.piece, LogPiece)}) > 1
    assert dict(application.rows(table)) == {1: "version 5", **{10 + number: "other" for number in range(6)}}


def test_a_commit_of_a_round_that_reads_nothing_moves_its_offsets(application: Application):
    table = application.table(num_buckets=2)
    application.write(table, named(range(6), "row"))
    application.write(table, dict.fromkeys(range(6)), WriteKind.DELETE)
    application.tier(table)
    known = application.client.lake_snapshot(table.path)
    assert known is not None
    assert dict(known.log_end_offsets) == application.ends(table)
    assert application.rows(table) == []
    (newest,) = application.lake.tables[str(table.path)]
    assert isinstance(newest.commit, LakeCommit)
