"""How many tasks an application runs at the same time, once its executors are there."""

from __future__ import annotations

import time
from typing import Final

from pyspark import SparkContext

_LONGEST_WAIT_S: Final = 30.0
"""As long as Spark waits before its first job (`spark.scheduler.maxRegisteredResourcesWaitingTime`)."""
_SETTLED_S: Final = 1.0
"""Executors that start together register within this time of each other."""
_LOOK_S: Final = 0.1


class Parallelism:
    """Tells how many tasks run at the same time.

    Spark counts the cores of the executors that have registered. When an application begins, there are none yet. A
    round would then be cut into too few pieces, and an application that requests executors by the number of its tasks
    would never get more. So the settings come first, and without them the first executors are waited for.

    Args:
        context: The application's Spark context.
    """

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._waited = False

    def __call__(self) -> int:
        """Return the number of tasks, at least 1. The first call may wait for executors."""
        configured = self._configured()
        if configured is None and not self._waited and not self._context.master.startswith("local"):
            self._wait()
            self._waited = True
        return max(1, int(self._context.defaultParallelism), configured or 0)

    def _configured(self) -> int | None:
        """Return how many tasks the executors of the settings run; None if the settings do not name their number."""
        # `SparkContext.getConf` copies all settings, with a call into the JVM for each of more than a hundred.
        conf = self._context._jsc.sc().conf()  # noqa: SLF001
        cores = conf.get("spark.executor.cores", "")
        dynamic = conf.get("spark.dynamicAllocation.enabled", "false") == "true"
        count = conf.get("spark.dynamicAllocation.maxExecutors" if dynamic else "spark.executor.instances", "")
        if not count or (not cores and self._context.master.startswith("spark:")):
            return None
        return int(count) * int(cores or 1) // int(conf.get("spark.task.cpus", "1"))

    def _wait(self) -> None:
        began = settled = time.monotonic()
        seen = 0
        while (now := time.monotonic()) - began < _LONGEST_WAIT_S:
            registered = self._registered()
            if registered != seen:
                seen, settled = registered, now
            if seen and now - settled >= _SETTLED_S:
                return
            time.sleep(_LOOK_S)

    def _registered(self) -> int:
        """Return how many executors have registered. Spark counts the driver as one, too."""
        return len(self._context._jsc.sc().statusTracker().getExecutorInfos()) - 1  # noqa: SLF001
