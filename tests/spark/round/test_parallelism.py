"""How many tasks run at the same time, also when no executor has registered yet."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from spark_support import driver_environment
from standalone_support import standalone_cluster

from fluss_tiering.spark.round.parallelism import Parallelism

PROGRAM = """
import sys
from pyspark.sql import SparkSession
from fluss_tiering.spark.round.parallelism import Parallelism

builder = SparkSession.builder.master(sys.argv[1])
for setting in sys.argv[2:]:
    builder = builder.config(*setting.split("="))
context = builder.getOrCreate().sparkContext
sys.stdout.write(str(Parallelism(context)()))
"""


def test_a_session_on_one_machine_waits_for_nobody(spark):
    assert Parallelism(spark.sparkContext)() == spark.sparkContext.defaultParallelism


# D52
@pytest.mark.long
@pytest.mark.spark
@pytest.mark.system
def test_the_executors_of_a_cluster_are_counted_when_they_have_registered(tmp_path: Path):
    with standalone_cluster(tmp_path, workers=3) as master:

        def parallelism(*settings: str) -> int:
            run = subprocess.run(
                [sys.executable, "-c", PROGRAM, master, *settings],
                env=driver_environment(),
                capture_output=True,
                text=True,
                timeout=200,
                check=False,
            )
            assert run.returncode == 0, run.stderr[-3000:]
            return int(run.stdout)

        assert parallelism() == 3
        # The settings name executors that the cluster starts only for more tasks, or that have no place yet.
        dynamic = ("spark.dynamicAllocation.enabled=true", "spark.dynamicAllocation.shuffleTracking.enabled=true")
        assert parallelism(*dynamic, "spark.dynamicAllocation.maxExecutors=20", "spark.executor.cores=1") == 20
        assert parallelism("spark.executor.instances=6", "spark.executor.cores=2", "spark.task.cpus=1") == 12
