"""Drivers in processes of their own: the Python driver, Spark's JVM and its workers form one process group."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from spark_support import Tiering, driver_environment

from fluss_tiering.model.table import TableInfo
from fluss_tiering.model.tiering import AcquiredLease
from fluss_tiering.spark.options import TierOptions
from fluss_tiering.spark.submit import application_arguments
from waiting import WAIT_S, wait_until

KILLED_AT = [(when, step) for step in ("prepare", "lake", "register") for when in ("before", "after")]
"""The steps at which a faulty driver may be killed."""
COMMITTED = [("after", "lake"), ("before", "register"), ("after", "register")]
"""The steps after the lake's commit, which decides whether the round counts."""
JVM_OPTIONS = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=128m", "-Xms64m"]
"""What an application starts its own JVM with."""
SHARPEST = ("after", "lake")
"""The step between the two commits: the lake has the snapshot, but nobody knows it."""

_FAULTY_DRIVER = Path(__file__).with_name("faulty_driver.py")


def driver_arguments(tiering: Tiering, lease: AcquiredLease, *tables: TableInfo) -> list[str]:
    """Return the arguments of the application, as Airflow submits it."""
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
    """Start a driver with a fault at a step of its commit. The file `marker` exists after the fault."""
    return start(str(_FAULTY_DRIVER), fault, when, step, str(marker), *arguments)


def kill_a_driver(
    tiering: Tiering, lease: AcquiredLease, tables: Sequence[TableInfo], at: tuple[str, str], marker: Path
) -> None:
    """Run a driver that is killed at a step of its commit."""
    code, output = end(start_faulty("kill", *at, marker, *driver_arguments(tiering, lease, *tables)))
    assert code == -signal.SIGKILL, output
    assert marker.exists()


def end(driver: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait until a driver ends by itself, and return its exit code and output."""
    try:
        output, _ = driver.communicate(timeout=WAIT_S)
    finally:
        kill(driver)
    return driver.returncode, output


def kill(driver: subprocess.Popen[str]) -> None:
    if driver.poll() is None:
        os.killpg(driver.pid, signal.SIGKILL)


def let_go(driver: subprocess.Popen[str]) -> tuple[int, str]:
    """Let a stopped driver continue, wait for its end, and return its exit code and output."""
    os.killpg(driver.pid, signal.SIGCONT)
    return end(driver)


def wait_for_driver(driver: subprocess.Popen[str], condition: Callable[[], object]) -> None:
    """Return once the condition holds. If the driver ends before, fail the test with its output."""

    def holds() -> bool:
        if condition():
            return True
        assert driver.poll() is None, driver.communicate()[0]
        return False

    wait_until(holds)


def commit_count(tiering: Tiering, table: TableInfo) -> int:
    """Return the number of our rounds in the lake. A round may have several lake snapshots."""
    return len({row.summary["fluss-tiering.commit-id"] for row in tiering.snapshots(table)})
