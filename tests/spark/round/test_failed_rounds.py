"""What a round that fails leaves in the lake and with the server, and whether its table is to blame."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import grpc
import pytest
from plain_rounds import Application, named
from py4j.protocol import Py4JNetworkError

from fault_proxy import FaultProxy, refused
from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket, TablePath
from fluss_tiering.model.tiering import Claim, HeartbeatEntry, TieringState
from fluss_tiering.spark.application import exit_code
from fluss_tiering.spark.round import round as round_module
from fluss_tiering.spark.round.commit import missing_lake_table
from fluss_tiering.spark.round.keepalive import KeepAlive, RoundGuard
from fluss_tiering.spark.round.pieces import StageJob
from fluss_tiering.spark.round.plan import RoundPlan
from fluss_tiering.spark.round.result import PieceResult, TableResult

GONE = FlussTieringError(ErrorCode.FENCED_TIERING_EPOCH, "superseded")
TIERED = TableResult(TablePath("db", "t"), TieringState.TIERED, 1.0, recorded=True)
FAILED = TableResult(TablePath("db", "t"), TieringState.FAILED, 1.0, recorded=True)
INTERRUPTED = replace(FAILED, interrupted=True)


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
    again = application.round(table, named(range(2, 6), "second"))

    assert again.stats.rows == 4, "what the lake has is not read again"
    assert application.rows(table) == sorted((named(range(4), "first") | named(range(2, 6), "second")).items())


def test_of_a_commit_that_was_registered_nothing_is_registered_again(application: Application, monkeypatch):
    table = application.table()
    application.round(table, named(range(4), "first"))
    registered: list[object] = []
    monkeypatch.setattr(TieringClient, "commit_lake_snapshot", lambda *arguments: registered.append(arguments))
    application.tier(table)
    assert registered == []


def test_a_lake_table_that_is_gone_is_not_made_again(application: Application):  # D45
    table = application.table()
    first = application.round(table, named(range(4), "first"))
    application.lake.tables.clear()
    error = application.fail(table)
    assert error.startswith(f"lake table missing: {table.lake_path}, whose snapshot {first.stats.lake_snapshot_id}")
    assert str(table.path) in error
    assert application.lake.tables == {}
    known = application.client.lake_snapshot(table.path)
    assert known is not None
    assert missing_lake_table(table, known).code is ErrorCode.LAKE_TABLE_MISMATCH


def test_what_somebody_else_did_to_the_lake_during_the_round_is_kept(application: Application):
    table = application.table(key=False)
    application.round(table, named(range(4), "first"))
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


# S5, L18: fenced between prepare and the lake's commit
def test_a_round_that_another_one_replaced_is_refused_before_the_lake_changes(application: Application, monkeypatch):
    table = application.table(key=False)
    application.write(table, named(range(4), "row"))
    prepare = TieringClient.prepare_lake_snapshot

    def superseded(client: TieringClient, *arguments: Any) -> str:
        (running,) = client.list_tiering_rounds(table.path)
        client.claim_tables([table.path], running.lease_id, running.attempt_token, "somebody else")
        return prepare(client, *arguments)

    monkeypatch.setattr(TieringClient, "prepare_lake_snapshot", superseded)
    result = application.run(table)
    assert "is not its present one" in str(result.error)
    assert application.lake.files_on_disk() == set()
    assert application.lake.tables[str(table.path)] == []


# S10: planning error
def test_a_round_that_cannot_be_planned_says_why(application: Application, monkeypatch):
    table = application.table(key=False)
    application.round(table, named(range(10), "row"))
    planned = round_module.plan_round

    def shifted(*, tiered: dict[TableBucket, int], **rest: Any) -> RoundPlan:
        """Plan as after the storage was put back from an old backup."""
        return planned(tiered={bucket: end + 1000 for bucket, end in tiered.items()}, **rest)

    monkeypatch.setattr(round_module, "plan_round", shifted)
    error = application.fail(table)
    assert "the lake holds its log up to offset 1010, but it ends at 10" in error
    (status,) = application.client.list_tiering_statuses(table.path)
    assert status.last_error == error


# Fluss #4452: a split that is throttled, and one whose stream breaks, are tried again with back-off
# More often than Spark tries a task, and gRPC a call.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "times"),
    [
        (grpc.StatusCode.RESOURCE_EXHAUSTED, 3),
        pytest.param(grpc.StatusCode.UNAVAILABLE, 11, marks=[pytest.mark.slow, pytest.mark.long]),
    ],
)
def test_a_throttled_split_does_not_fail_its_round(application: Application, status: grpc.StatusCode, times: int):
    elsewhere = replace(application.client.describe_storage(), data_dir="")
    log, keyed = application.table(key=False), application.table()
    for table in (log, keyed):
        application.write(table, named(range(10), "row"))
    application.client.take_kv_snapshots([keyed.path])
    application.write(keyed, named(range(5, 15), "more"))
    with FaultProxy(application.target) as proxy:
        for method in ("FetchLog", "FetchKvSnapshot"):
            proxy.faults[method] = refused(status, "too many requests", times=times)
        for table in (log, keyed):
            application.tier(table, storage=elsewhere, target=proxy.target)
        assert proxy.calls["FetchLog"] > times
        assert proxy.calls["FetchKvSnapshot"] > times
    assert application.rows(log) == sorted(named(range(10), "row").items())
    assert application.rows(keyed) == sorted((named(range(10), "row") | named(range(5, 15), "more")).items())


# S22
def test_a_table_that_another_round_holds_is_waited_for_and_then_named(application: Application):
    table = application.table()
    (claim,) = application.client.claim_tables([table.path], "somebody else's", None, "their driver")
    assert isinstance(claim, Claim)

    result = application.run(table, claim_timeout_s=0)

    for part in ("is being tiered", "their driver", "waited 0 s"):
        assert part in str(result.error)
    # Nobody could read this failure from the table's status, so the exit code has to tell.
    assert not result.recorded
    assert exit_code([result], outcome_in_status=True) == 1
    assert application.client.list_tiering_rounds(table.path)[0].tiering_epoch == claim.tiering_epoch


# S11
def test_secrets_stay_out_of_what_is_logged_and_recorded(application: Application, caplog):
    table = application.table(key=False)
    application.write(table, named(range(4), "row"))

    def fail(*_: object) -> None:
        raise FlussTieringError(ErrorCode.STORAGE, "could not open jdbc:postgresql://db/lake?user=me&password=hunter2")

    application.on_stage = fail
    result = application.run(table)
    (ended,) = application.client.list_tiering_rounds(table.path)
    for text in (str(result.error), str(ended.error)):
        assert "could not open" in text
        assert "hunter2" not in text
    assert "hunter2" not in caplog.text


# What is the table's fault, and what is not


# D64
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
def test_a_round_tells_whether_its_table_is_to_blame(application: Application, failure: Exception, interrupted: bool):
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


def test_a_failure_that_the_server_cannot_record_is_reported_again(application: Application, monkeypatch):
    """As when the disk of the server is full. The table would stay Tiering until the round's heartbeats are missed."""
    table = application.table(key=False)
    application.write(table, named(range(4), "row"))

    def fail(*_: object) -> None:
        raise FlussTieringError(ErrorCode.STORAGE, "the lake is full")

    def full(*_: object, **__: object) -> None:
        raise FlussTieringError(ErrorCode.STORAGE, "the disk is full")

    later: list[HeartbeatEntry] = []
    application.on_stage = fail
    with monkeypatch.context() as patched:
        patched.setattr(TieringClient, "heartbeat", full)
        patched.setattr(KeepAlive, "report_later", lambda _, entry: later.append(entry))
        result = application.run(table)
    assert not result.recorded
    (status,) = application.client.list_tiering_statuses(table.path)
    assert status.state is TieringState.TIERING
    assert application.client.heartbeat(failed=later).failed_errors == {}
    (status,) = application.client.list_tiering_statuses(table.path)
    assert (status.state, status.last_error) == (TieringState.FAILED, "the lake is full")


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
