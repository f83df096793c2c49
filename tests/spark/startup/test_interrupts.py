"""Ctrl-C while the main thread waits for the JVM: the process ends at once, and says nothing of py4j."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from spark_support import driver_environment

from waiting import WAIT_S, wait_until

_WAITS = """
import sys, time
from pathlib import Path
from fluss_tiering.spark.startup.interrupts import check_interrupt
from fluss_tiering.spark.startup.session import own_session

folder = sys.argv[1]
try:
    with own_session("local[1]") as spark:
        try:
            spark.sparkContext.parallelize([0]).foreach(lambda _: (Path(folder, "begun").touch(), time.sleep(600)))
        except Exception as error:
            # pyspark asks the JVM while KeyboardInterrupt passes, and may get no answer. Whoever catches asks, too.
            check_interrupt()
            print("taken for a failure:", error)
        finally:
            # As pyspark does it where a call in its own `finally` fails.
            raise ValueError("hides the interrupt")
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.sampled(1)
@pytest.mark.system
@pytest.mark.slow
@pytest.mark.parametrize("whole_group", [False, True])
def test_ctrl_c_is_not_taken_for_the_failure_of_a_call(spark_jars: str, tmp_path: Path, whole_group: bool) -> None:
    # A terminal signals all processes of its group, also the workers.
    messages = tmp_path / "messages"
    with messages.open("wb") as told:
        process = subprocess.Popen(
            [sys.executable, "-c", _WAITS, str(tmp_path)],
            env=driver_environment(),
            stdout=told,
            stderr=told,
            start_new_session=True,
        )
    try:
        wait_until((tmp_path / "begun").exists)
        started = psutil.Process(process.pid).children(recursive=True)
        assert "java" in {each.name() for each in started}
        if whole_group:
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S) == 130
        # D24: no JVM stays behind.
        wait_until(lambda: not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in started))
    finally:
        process.kill()
    assert messages.read_text() == ""
