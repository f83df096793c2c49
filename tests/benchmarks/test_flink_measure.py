"""What the peer benchmark measures: CPU seconds and memory of a tree of processes, and when Flink did what."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from benchmarks.flink.flink_tiering import FlinkTiering
from benchmarks.flink.measure import TreeSampler

# A parent that only waits; its child burns a second of CPU with 100 MB resident.
PARENT = """\
import subprocess, sys
child = "import time; kept = bytearray(100_000_000); kept[::4096] = b'x' * len(kept[::4096])\\n"
child += "while time.process_time() < 1: pass\\ntime.sleep(0.5)"
subprocess.run([sys.executable, "-c", child])
input()
"""


@pytest.mark.system
def test_the_cpu_of_children_that_ended_counts():
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE)
    try:
        with TreeSampler(lambda: [parent.pid]) as sampler:
            started = time.time()
            process = psutil.Process(parent.pid)
            while not process.children():
                time.sleep(0.02)
            begun = time.time()
            while process.children():
                time.sleep(0.02)
            ended = time.time()
            time.sleep(0.3)
        assert 0.8 < sampler.cpu_seconds(started, time.time()) < 2.5
        assert sampler.peak_bytes(begun, ended) > 100_000_000
        # Nothing was used after the end, nor is it taken for used again.
        assert sampler.cpu_seconds(ended + 0.2, time.time()) < 0.2
    finally:
        assert parent.stdin is not None
        parent.stdin.close()
        parent.wait(10)


def test_times_of_flinks_rounds(tmp_path: Path):
    log = tmp_path / "flink.log"
    log.write_text(
        "1000 Tiering table (7,1,flink.keyed) has been requested.\n"
        "2000 Got FinishedTieringEvent for tiering table 7. \n"
        "5000 Tiering table (8,1,flink.other) has been requested.\n"
        "6000 Tiering table (7,2,flink.keyed) has been requested.\n"
        "6500 Got FinishedTieringEvent for tiering table 7. \n"
        "7000 Tiering table (7,3,flink.keyed) has been requested.\n"
        "8000 Tiering table 7 is failed, fail reason is java.io.IOException: no room\n"
    )
    flink = FlinkTiering.__new__(FlinkTiering)
    flink._started = SimpleNamespace(log=str(log))
    table = SimpleNamespace(table_id=7)
    assert (flink.claim_time(table, 0), flink.finish_time(table, 0)) == (1.0, 2.0)
    # The first after that time, whatever came before it and was done again.
    assert (flink.claim_time(table, 3), flink.finish_time(table, 3)) == (6.0, 6.5)
    assert flink.finish_time(table, 7) is None
    assert flink.failure() == "java.io.IOException: no room"
