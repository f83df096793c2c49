"""Drivers that are processes of their own: the Python driver, Spark's JVM and its workers, in one process group."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from spark_support import Tiering, driver_environment

from fluss_tiering.model.lease import AcquiredLease
from fluss_tiering.model.table import TableInfo
from fluss_tiering.spark.options import TierOptions
from fluss_tiering.spark.submit import application_arguments
from waiting import WAIT_S, wait_until

KILLED_AT = [(when, step) for step in ("prepare", "lake", "register") for when in ("before", "after")]
"""Where a faulty driver may be killed."""
COMMITTED = [("after", "lake"), ("before", "register"), ("after", "register")]
"""Where the lake's commit, which is what counts, is behind it."""

_FAULTY_DRIVER = Path(__file__).with_name("faulty_driver.py")


def driver_arguments(tiering: Tiering, lease: AcquiredLease, *tables: TableInfo) -> list[str]:
    """Of the application, as Airflow submits it."""
    options = TierOptions(
        server=tiering.target,
        tables=tuple(table.path for table in tables),
        lease_id=lease.lease_id,
        attempt_token=lease.attempt_token,
    )
    return application_arguments(options)


def start(*command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *command],
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=driver_environment(),
    )


def start_faulty(fault: str, when: str, step: str, marker: Path, *arguments: str) -> subprocess.Popen[str]:
    """A driver to whom `fault` happens at a step of its commit; `marker` is there once it has."""
    return start(str(_FAULTY_DRIVER), fault, when, step, str(marker), *arguments)


def end(driver: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code and output of a driver that ends by itself."""
    try:
        output, _ = driver.communicate(timeout=WAIT_S)
    finally:
        kill(driver)
    return driver.returncode, output


def kill(driver: subprocess.Popen[str]) -> None:
    if driver.poll() is None:
        os.killpg(driver.pid, signal.SIGKILL)


def let_go(driver: subprocess.Popen[str]) -> tuple[int, str]:
    """As `end`, of one that was stopped."""
    os.killpg(driver.pid, signal.SIGCONT)
    return end(driver)


def wait_for_driver(driver: subprocess.Popen[str], condition: Callable[[], object]) -> None:
    """Return once the condition holds, and fail the test with the driver's output if the driver ends before."""

    def holds() -> bool:
        if condition():
            return True
        assert driver.poll() is None, driver.communicate()[0]
        return False

    wait_until(holds)


def commit_count(tiering: Tiering, table: TableInfo) -> int:
    """Rounds of ours in the lake, each of which may be several snapshots of it."""
    return len({row.summary["fluss-tiering.commit-id"] for row in tiering.snapshots(table)})
