"""Drivers that end in the middle of a round: their tables are not blamed, and nothing of them goes on running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pyspark
import pytest
from driver_support import JVM_OPTIONS
from spark_support import driver_environment, submit_environment

from engine_support import new_table
from fluss_tiering.client import TieringClient, lease_latest_snapshots
from fluss_tiering.model.table import TableInfo
from fluss_tiering.model.tiering import AcquiredLease, TieringRound, TieringState
from fluss_tiering.spark.application import EXIT_INTERRUPTED
from fluss_tiering.spark.options import TierOptions
from fluss_tiering.spark.submit import application_arguments, conf_arguments, spark_conf
from waiting import WAIT_S, wait_until

pytestmark = [pytest.mark.system, pytest.mark.slow]

HELD_DRIVER = str(Path(__file__).with_name("held_driver.py"))
LEASE_MS = 600_000
OTHER_ENDS = [(signal.SIGKILL, True), (signal.SIGTERM, False), (signal.SIGTERM, True)]
"""The ends of a JVM, which the command or `spark-submit` has started, that are no kill of the command's own JVM."""


class HeldRound:
    """A driver that is in the middle of the stage of its round, and waits there."""

    def __init__(self, client: TieringClient, target: str, folder: Path, *, submitted: bool, drains: bool) -> None:
        self.client = client
        self.table: TableInfo = new_table(client, range(10), freshness="1s")
        self.lease: AcquiredLease | None = None
        options = TierOptions(server=target, tables=(self.table.path,), drain=drains, outcome_in_status=True)
        if drains:
            # A drain ends at once if no table is pending.
            wait_until(self._is_pending)
        else:
            self.lease = lease_latest_snapshots(client, f"held {self.table.path}", [self.table.path], LEASE_MS)
            options = TierOptions(
                server=target,
                tables=(self.table.path,),
                lease_id=self.lease.lease_id,
                attempt_token=self.lease.attempt_token,
                outcome_in_status=True,
            )
        arguments = [HELD_DRIVER, str(folder), *application_arguments(options)]
        command = [sys.executable]
        environment = driver_environment()
        if submitted:
            conf = ["--conf", "spark.ui.enabled=false", *conf_arguments(spark_conf())]
            command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[2]", *conf]
            environment = submit_environment()
        self.messages = folder / "messages"
        with self.messages.open("wb") as written:
            self.driver = subprocess.Popen(
                [*command, *arguments], start_new_session=True, stdout=written, stderr=written, env=environment
            )
        wait_until(lambda: (folder / "started").exists() or self.driver.poll() is not None, describe=self.told)
        assert self.driver.poll() is None, self.told()

    def _is_pending(self) -> bool:
        (status,) = self.client.list_tiering_statuses(self.table.path)
        return status.state is TieringState.PENDING

    def told(self) -> str:
        return self.messages.read_text()

    def processes(self) -> list[psutil.Process]:
        """Return the processes that the driver is made of, except those that have ended."""
        return [each for each in psutil.process_iter() if _session(each) == self.driver.pid]

    def jvm(self) -> psutil.Process:
        (jvm,) = [each for each in self.processes() if each.name() == "java"]
        return jvm

    def python(self) -> psutil.Process:
        """Return the process that runs the application, also if `spark-submit` started it."""
        (driver,) = [each for each in self.processes() if HELD_DRIVER in each.cmdline() and each.name() != "java"]
        return driver

    def end(self) -> tuple[int, TieringRound]:
        """Wait until nothing of the driver runs, and return its exit code and its round."""
        code = self.driver.wait(WAIT_S)
        wait_until(lambda: not self.processes(), describe=self.processes)
        (ended,) = self.client.list_tiering_rounds(self.table.path)
        return code, ended


def _session(process: psutil.Process) -> int:
    try:
        return 0 if process.status() == psutil.STATUS_ZOMBIE else os.getsid(process.pid)
    except (psutil.NoSuchProcess, ProcessLookupError):
        return 0


@pytest.fixture
def client(lake_target: str) -> Iterator[TieringClient]:
    with TieringClient(lake_target) as connected:
        yield connected


@pytest.fixture
def held(client: TieringClient, lake_target: str, tmp_path: Path) -> Iterator[Callable[..., HeldRound]]:
    started = []

    def hold(*, submitted: bool = False, drains: bool = False) -> HeldRound:
        started.append(HeldRound(client, lake_target, tmp_path, submitted=submitted, drains=drains))
        return started[0]

    yield hold
    for each in started:
        for process in each.processes():
            process.kill()
        each.driver.wait()


def failures(round_: HeldRound) -> int:
    (status,) = round_.client.list_tiering_statuses(round_.table.path)
    return status.consecutive_failures


@pytest.mark.parametrize(
    ("how", "submitted"),
    [
        (signal.SIGKILL, False),
        *(pytest.param(how, submitted, marks=pytest.mark.long) for how, submitted in OTHER_ENDS),
    ],
)
def test_the_end_of_the_jvm_interrupts_the_round(  # D64
    held: Callable[..., HeldRound], how: signal.Signals, submitted: bool
) -> None:
    running = held(submitted=submitted)
    if not submitted:
        assert [option for option in running.jvm().cmdline() if option in JVM_OPTIONS] == JVM_OPTIONS
    running.jvm().send_signal(how)
    code, ended = running.end()
    assert code != 0
    assert (ended.state, ended.interrupted) == (TieringState.FAILED, True), running.told()
    assert ended.error is not None
    assert ended.error.startswith("Spark has ended by itself")
    assert failures(running) == 0
    assert "failed unexpectedly" not in running.told()


# D64
@pytest.mark.long
@pytest.mark.parametrize("drains", [False, True], ids=["tables", "a drain"])
def test_a_driver_that_is_told_to_end_interrupts_its_round(held: Callable[..., HeldRound], drains: bool) -> None:
    running = held(drains=drains)
    running.python().send_signal(signal.SIGTERM)
    code, ended = running.end()
    assert code == 128 + signal.SIGTERM
    assert (ended.state, ended.interrupted) == (TieringState.FAILED, True), running.told()
    assert ended.error == "cancelled: the application was told to stop before the round ended"
    assert failures(running) == 0


@pytest.mark.long
@pytest.mark.parametrize("submitted", [False, True], ids=["by the command", "by spark-submit"])
def test_a_cancelled_application_ends_without_a_heartbeat(  # D63, D66
    held: Callable[..., HeldRound], submitted: bool, record_property: Callable[[str, object], None]
) -> None:
    running = held(submitted=submitted)
    assert running.lease is not None
    reason = "the task was marked as failed by hand"
    running.client.cancel_tiering(running.lease.lease_id, running.lease.attempt_token, reason)
    began = time.monotonic()
    running.client.cancel_tiering(running.lease.lease_id, running.lease.attempt_token, "task submit failed")
    code, ended = running.end()
    # For people: the machine decides how long it takes, but it is no heartbeat's time.
    record_property("seconds to the end", round(time.monotonic() - began, 1))
    assert code == EXIT_INTERRUPTED, running.told()
    assert (ended.state, ended.interrupted, ended.error) == (TieringState.FAILED, True, reason)
    outcome = running.client.lease_outcome(running.lease.lease_id, running.lease.attempt_token)
    assert (outcome.cancelled_reason, [each.error for each in outcome.rounds]) == (reason, [reason])
    assert reason in running.told()
    assert failures(running) == 0
