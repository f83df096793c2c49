"""A try of the submit task whose predecessor was killed, while the application goes on or does not."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException
from provider_support import LIVING, Driver, dead_driver

from airflow_provider_fluss.operators import living_rounds
from airflow_provider_fluss.operators.living_rounds import wait_for_living_rounds
from airflow_provider_fluss.operators.tiering import FlussTieringSparkOperator
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import LeaseOutcome, TieringRound, TieringState
from waiting import wait_until

A, B = TablePath("db", "a"), TablePath("db", "b")


class Retry:
    """The second of three tries of a submit task, in a thread."""

    def __init__(self, lease: dict[str, Any], context: dict[str, Any]) -> None:
        self.operator = FlussTieringSparkOperator(task_id="submit", lease=lease, retries=2)
        self.error: BaseException | None = None
        self._context = context
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def has_ended(self) -> bool:
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self.operator.execute(self._context)
        except AirflowException as error:
            self.error = error


@pytest.fixture
def living(client):
    return Driver(client, LIVING)


@pytest.fixture
def retry(lease, context, monkeypatch) -> Callable[[], Retry]:
    """Begins the next try, and returns when it waits for a round."""

    def begin() -> Retry:
        waits = threading.Event()
        lives = living_rounds._lives

        def notice(each: TieringRound) -> bool:
            if lives(each):
                waits.set()
            return lives(each)

        monkeypatch.setattr(living_rounds, "_lives", notice)
        # An operator looks every two seconds.
        monkeypatch.setattr(wait_for_living_rounds, "__defaults__", (0.05,))
        trying = Retry(lease, context("submit", try_number=2, max_tries=2))
        wait_until(lambda: waits.is_set() or trying.has_ended)
        assert not trying.has_ended, trying.error
        return trying

    return begin


def test_the_rounds_of_a_living_driver_are_waited_for_and_need_no_spark(spark, living, lease, retry):  # D70
    called = spark("")
    claims = [living.claim(lease, table) for table in lease["tables"]]
    trying = retry()
    for claim in claims:
        living.finish(claim)  # it is refused if another driver has taken the round over
    wait_until(lambda: trying.has_ended)
    assert trying.error is None
    with pytest.raises(FileNotFoundError):
        called()


def test_spark_gets_what_a_living_driver_left(spark, living, lease, retry):  # D70
    called = spark("")
    first, second = lease["tables"]
    claims = [living.claim(lease, table) for table in (first, second)]
    trying = retry()
    living.finish(claims[0])
    living.fail(claims[1], "the application was told to stop", interrupted=True)
    wait_until(lambda: trying.has_ended)
    assert called()[-2:] == ["--outcome-in-status", second]


def test_a_table_that_failed_meanwhile_is_not_tried_again(spark, living, lease, retry):  # D70
    called = spark("")
    first, second = lease["tables"]
    claims = [living.claim(lease, table) for table in (first, second)]
    trying = retry()
    living.finish(claims[0])
    living.fail(claims[1], "disk full")
    wait_until(lambda: trying.has_ended)
    assert isinstance(trying.error, AirflowFailException)
    assert str(trying.error) == f"1 of 2 tables failed to be tiered: {second} (epoch 1): disk full"
    with pytest.raises(FileNotFoundError):
        called()


def test_a_driver_of_this_machine_that_is_dead_is_not_waited_for(spark, driver, lease, context):
    called = spark("")
    claims = [driver.claim(lease, table) for table in lease["tables"]]
    assert claims
    FlussTieringSparkOperator(task_id="submit", lease=lease).execute(context("submit", try_number=2, max_tries=2))
    assert called()[-2:] == lease["tables"]


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("failed", "was cancelled: task submit was marked failed"),
        ("running", "was stopped: task submit was killed"),
    ],
)
def test_a_kill_ends_the_wait(spark, living, lease, retry, task_states, state, said):
    spark("")
    claim = living.claim(lease, lease["tables"][0])
    trying = retry()
    task_states["submit"] = state
    trying.operator.on_kill()
    wait_until(lambda: trying.has_ended)
    assert str(trying.error) == f"Tiering of {', '.join(lease['tables'])} {said}"
    if state == "running":
        living.finish(claim)  # a try follows, so that the application may go on


def test_a_cancellation_ends_the_wait_with_its_reason(client, spark, living, lease, retry):
    spark("")
    living.claim(lease, lease["tables"][0])
    trying = retry()
    client.cancel_tiering(lease["lease_id"], lease["attempt_token"], "task wait was marked failed")
    wait_until(lambda: trying.has_ended)
    assert isinstance(trying.error, AirflowFailException)
    assert str(trying.error).endswith("was cancelled: task wait was marked failed")


def running(path: TablePath, driver: str = LIVING) -> TieringRound:
    return TieringRound(1, path, 1, TieringState.TIERING, "lease", 1, driver, 0)


def waited(answers: Iterator[LeaseOutcome | Exception]) -> tuple[LeaseOutcome, frozenset[TablePath], int]:
    """The outcome of a wait, the tables that it waited for, and how often it asked."""
    asked = []

    def ask() -> LeaseOutcome:
        asked.append(1)
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    log = logging.getLogger(__name__)
    outcome, tables = wait_for_living_rounds(ask, lambda: False, log, poll_seconds=0)
    return outcome, tables, len(asked)


def test_the_gap_between_two_rounds_of_a_driver_is_no_end():
    ended = replace(running(A), state=TieringState.TIERED)
    both = LeaseOutcome((ended, replace(running(B), state=TieringState.TIERED)))
    answers = [LeaseOutcome((running(A),)), LeaseOutcome((ended,)), LeaseOutcome((ended, running(B))), both, both, both]
    outcome, tables, asked = waited(iter(answers))
    assert (outcome, tables, asked) == (both, {A, B}, 6)


def test_a_first_try_asks_once():
    assert waited(iter([LeaseOutcome(())])) == (LeaseOutcome(()), frozenset(), 1)


def test_an_outage_of_the_server_does_not_end_the_wait():
    away = FlussTieringError(ErrorCode.UNAVAILABLE, "the server is away")
    ended = LeaseOutcome((replace(running(A), state=TieringState.TIERED),))
    _, tables, asked = waited(iter([LeaseOutcome((running(A),)), away, ended, ended, ended]))
    assert (tables, asked) == ({A}, 5)


@pytest.mark.parametrize(
    ("driver", "is_waited_for"),
    [
        (LIVING, True),
        ("a test", True),
        (f"local-1 on {socket.gethostname()}, process {os.getpid()}", True),
        (f"local-1 on {socket.gethostname()}, process 1", True),
        (None, False),
    ],
    # Each worker of a run has a process id of its own, and all must have the same tests.
    ids=["another machine", "no driver's name", "this process", "a process of another user", "a process that ended"],
)
def test_only_a_process_of_this_machine_can_be_known_to_be_dead(driver, is_waited_for):
    ended = LeaseOutcome((replace(running(A), state=TieringState.TIERED),))
    answers = [LeaseOutcome((running(A, driver or dead_driver()),)), ended, ended, ended]
    _, tables, _ = waited(iter(answers))
    assert (tables == {A}) is is_waited_for
