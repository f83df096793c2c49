"""Whole rounds without a JVM that delete rows by position, also in places with several pieces (see `plain_positions`).

The rows that are deleted are in data files that somebody may rewrite meanwhile: the deletes are then written anew.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

import pytest
from plain_lake import PlainTable
from plain_rounds import Application, named

from fluss_tiering.lake.files import FileContent, LakeFile
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo, WriteKind
from fluss_tiering.spark.round import round as round_module
from fluss_tiering.spark.round.deletes import DeleteJob
from fluss_tiering.spark.round.keepalive import RoundGuard
from fluss_tiering.spark.round.pieces import StageJob
from fluss_tiering.spark.round.plan import PlanLimits
from fluss_tiering.spark.round.result import PieceResult

BY_POSITION = {"table.datalake.delete-files": "position"}
SMALL_PIECES = PlanLimits(append_piece_bytes=1, change_piece_bytes=1, parallelism=3)
GONE = FlussTieringError(ErrorCode.FENCED_TIERING_EPOCH, "superseded")


def by_position(application: Application, num_buckets: int = 1) -> TableInfo:
    return application.table(num_buckets=num_buckets, properties=BY_POSITION)


def newest_files(application: Application, table: TableInfo, content: FileContent) -> list[LakeFile]:
    return [file for file in application.lake.tables[str(table.path)][-1].files if file.content is content]


@pytest.mark.parametrize("limits", [PlanLimits(), SMALL_PIECES], ids=["one piece", "several pieces"])
@pytest.mark.slow
def test_the_lake_holds_the_last_row_of_each_key(application: Application, limits: PlanLimits):
    table = by_position(application, num_buckets=2)
    chance = random.Random(7)
    expected = named(range(40), "first")
    application.write(table, expected)
    application.client.take_kv_snapshots([table.path])
    for step in range(3):
        for part in range(2):
            changed = named(chance.sample(range(60), 15), f"step {step}, part {part}")
            gone = chance.sample(sorted(expected.keys() - changed.keys()), 3)
            application.write(table, changed)
            application.write(table, dict.fromkeys(gone), WriteKind.DELETE)
            expected = {key: name for key, name in {**expected, **changed}.items() if key not in gone}
        application.tier(table, limits=limits)

        assert application.rows(table) == sorted(expected.items()), step
        newest = application.lake.tables[str(table.path)][-1]
        assert newest.parts == 1, "the deletes of a row delta apply to its own rows, so that there is one of them"
        assert FileContent.EQUALITY_DELETES not in {file.content for file in newest.files}
        assert all(file.packed for file in newest.files)


def test_the_deletes_of_a_place_with_several_pieces_are_written_after_them(application: Application):
    table = by_position(application, num_buckets=2)
    application.round(table, named(range(20), "first"))
    # All changes but the first are of one key, so that one bucket has several pieces and the other has none or one.
    for step in range(4):
        application.write(table, {1: f"version {step}"})
    result = application.tier(table, limits=SMALL_PIECES)

    ((job, group),) = application.jobs
    ((deletes, of_deletes),) = application.delete_jobs
    assert of_deletes == group, "both stages are watched and cancelled as one"
    assert all(work.notes_keys for work in job.work)
    (place,) = deletes.work
    assert (deletes.table, deletes.tasks) == (job.table, 1)
    assert application.told.stages == [(f"{table.path}: {group}", job.tasks + 1)]
    (written,) = newest_files(application, table, FileContent.POSITION_DELETES)
    last = len(job.work) - 1
    assert written.location == f"{application.jobs[0][0].work[last].location}-0-deletes.json"
    assert written.bucket == place.bucket
    # What the second stage wrote counts as what the place's last piece wrote.
    assert result.stats.files == len(application.lake.tables[str(table.path)][-1].files)
    assert application.rows(table) == sorted((named(range(20), "first") | {1: "version 3"}).items())


def test_a_place_that_is_alone_needs_no_second_stage(application: Application):
    table = by_position(application, num_buckets=3)
    for step in range(2):
        application.round(table, named(range(20), f"step {step}"))
        ((job, _),) = application.jobs
        assert application.delete_jobs == []
        assert application.told.stages[0][1] == job.tasks
        assert not any(work.notes_keys for work in job.work)
    assert application.rows(table) == sorted(named(range(20), "step 1").items())


# Somebody rewrites data files


def change_during_commits(
    application: Application, table: TableInfo, change: Callable[[TableInfo], object], times: int
) -> list[int]:
    """Change a lake table during the next so many commits; return a list that has an item for each commit."""
    commits: list[int] = []

    def before_commit() -> None:
        commits.append(len(commits) + 1)
        if len(commits) <= times:
            change(table)

    application.lake.before_commit = before_commit
    return commits


def with_rows_of_others(application: Application) -> Callable[[TableInfo], object]:
    """Return what makes a snapshot of somebody who may have added rows."""
    return lambda table: application.lake.add(table, None, application.lake.tables[str(table.path)][-1].rows)


def data_files(application: Application) -> set[str]:
    return {name for name in application.lake.files_on_disk() if name.endswith(".parquet") and name[0] != "r"}


# E3
@pytest.mark.parametrize("limits", [PlanLimits(), SMALL_PIECES], ids=["one piece", "several pieces"])
@pytest.mark.parametrize("times", [1, 4])
@pytest.mark.slow
def test_a_round_whose_data_files_are_rewritten_writes_only_its_deletes_anew(
    application: Application, times: int, limits: PlanLimits
):
    table = by_position(application, num_buckets=2)
    application.round(table, named(range(20), "first"))
    application.round(table, dict.fromkeys(range(10, 14)), WriteKind.DELETE)
    for step in range(3):
        application.write(table, named(range(3), f"step {step}"))
        application.write(table, dict.fromkeys((4, 19)), WriteKind.DELETE)
    before = data_files(application)
    commits = change_during_commits(application, table, application.lake.compact, times)
    application.tier(table, limits=limits)

    assert len(commits) == times + 1
    assert application.told.steps.count(f"{table.path}: planning") == 1, "it was not read again"
    assert len(data_files(application) - before) == sum(
        file.content is FileContent.DATA for each in application.written for file in each.files
    )
    gone = {4, 19, *range(10, 14)}
    expected = named(range(20), "first") | named(range(3), "step 2")
    assert application.rows(table) == sorted((key, name) for key, name in expected.items() if key not in gone)
    live = {
        file.location.rpartition("/")[2] for each in application.lake.tables[str(table.path)] for file in each.files
    }
    left = {name for name in application.lake.files_on_disk() if not name.startswith("rewritten")}
    assert left == live, "what could not be committed is gone"


# E3
@pytest.mark.slow
def test_rewrites_during_each_try_never_count_as_failures_of_the_table(application: Application):
    table = by_position(application)
    application.round(table, named(range(10), "first"))
    application.write(table, named(range(3), "second"))

    def rewrite(table: TableInfo) -> None:
        application.lake.compact(table)
        application.now += 61

    change_during_commits(application, table, rewrite, 1000)
    for _ in range(12):
        result = application.run(table)
        assert result.error is not None
        assert result.error.startswith("data files were rewritten during each try to commit")
        assert result.interrupted
        (status,) = application.client.list_tiering_statuses(table.path)
        assert (status.consecutive_failures, status.interruptions) == (0, 0)
        assert status.next_retry_time is not None, "it is not parked"
    assert application.rows(table) == sorted(named(range(10), "first").items())
    application.lake.before_commit = lambda: None
    application.tier(table)
    assert application.rows(table) == sorted((named(range(10), "first") | named(range(3), "second")).items())


def test_a_round_whose_rows_may_have_been_changed_is_read_again_and_then_gives_up(application: Application):
    table = by_position(application)
    application.round(table, named(range(10), "first"))
    application.write(table, named(range(3), "second"))
    commits = change_during_commits(application, table, with_rows_of_others(application), 9)
    assert "changed by somebody else" in application.fail(table)
    assert len(commits) == 3
    assert application.told.steps.count(f"{table.path}: planning") == 3
    assert application.rows(table) == sorted(named(range(10), "first").items())
    application.lake.before_commit = lambda: None
    application.tier(table)
    assert application.rows(table) == sorted((named(range(10), "first") | named(range(3), "second")).items())


@pytest.mark.parametrize("kind", ["a log table", "deletes by key", "no deletes"])
def test_a_conflict_of_a_round_that_refers_to_no_data_files_is_left_to_the_next_round(
    application: Application, kind: str
):
    table = by_position(application) if kind == "no deletes" else application.table(key=kind == "deletes by key")
    application.round(table, named(range(10), "first"))
    application.write(table, named(range(10, 13) if kind != "deletes by key" else range(3), "second"))
    commits = change_during_commits(application, table, with_rows_of_others(application), 1)
    before = application.lake.files_on_disk()
    assert "changed by somebody else" in application.fail(table)
    assert len(commits) == 1
    assert application.lake.files_on_disk() == before


@pytest.mark.parametrize("code", [ErrorCode.STORAGE, ErrorCode.FENCED_TIERING_EPOCH])
def test_another_failure_of_the_commit_is_not_tried_again(application: Application, monkeypatch, code: ErrorCode):
    table = by_position(application)
    application.round(table, named(range(10), "first"))
    application.write(table, named(range(3), "second"))
    asked: list[object] = []

    def refused(*arguments: object, **_: object) -> int:
        asked.append(arguments)
        raise FlussTieringError(code, "refused")

    monkeypatch.setattr(PlainTable, "commit", refused)
    assert application.run(table).error == "refused"
    assert len(asked) == 1


# A round that is lost between its stages


@pytest.mark.parametrize("stage", [StageJob, DeleteJob])
def test_a_round_that_is_lost_leaves_no_files(application: Application, monkeypatch, stage: type):
    table = by_position(application)
    application.round(table, named(range(10), "first"))
    before = application.lake.files_on_disk()
    for step in range(4):
        application.write(table, named(range(5), f"step {step}"))
    guards: list[RoundGuard] = []
    application.on_stage = lambda job, guard: guards.append(guard)
    done = stage.__call__
    on_disk: list[set[str]] = []

    def lose_at_the_end(job: StageJob | DeleteJob, numbers: Sequence[int]) -> Iterator[PieceResult]:
        yield from done(job, numbers)
        on_disk.append(application.lake.files_on_disk())
        guards[0].lose(GONE)

    monkeypatch.setattr(stage, "__call__", lose_at_the_end)
    assert application.fail(table, limits=SMALL_PIECES) == "superseded"
    assert on_disk[0] > before
    assert application.lake.files_on_disk() == before
    assert len(application.delete_jobs) == (stage is DeleteJob)
    assert application.rows(table) == sorted(named(range(10), "first").items())


def test_a_second_stage_that_fails_leaves_no_files_of_the_first(application: Application, monkeypatch):
    monkeypatch.setattr(round_module, "_MAX_PIECES_IN_JOB", 2)
    table = by_position(application)
    first = application.round(table, named(range(5), "first"))
    before = application.lake.files_on_disk()
    for step in range(4):
        application.write(table, named(range(5), f"step {step}"))

    def fail(job: DeleteJob, numbers: Sequence[int]) -> Iterator[PieceResult]:
        raise FlussTieringError(ErrorCode.UNKNOWN, "a Spark executor was lost")

    with monkeypatch.context() as patched:
        patched.setattr(DeleteJob, "__call__", fail)
        assert application.fail(table, limits=SMALL_PIECES) == "a Spark executor was lost"
    assert application.lake.files_on_disk() == before
    known = application.client.lake_snapshot(table.path)
    assert known is not None
    assert known.snapshot_id == first.stats.lake_snapshot_id
    # The pieces of a place may be in several jobs.
    application.tier(table, limits=SMALL_PIECES)
    assert len(application.jobs) > 1
    assert application.rows(table) == sorted(named(range(5), "step 3").items())
