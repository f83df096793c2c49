"""Maintenance of lake tables between rounds, one table at a time, which ends as soon as it is in the way."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from fluss_tiering.client import TieringClient
from fluss_tiering.model.closing import Closing
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import TableInfo, TablePath
from fluss_tiering.spark.maintenance.interruption import Interruption
from fluss_tiering.spark.maintenance.maintain import Maintenance, maintain_table
from fluss_tiering.spark.maintenance.plan import MaintenanceLimits, Plan, Step, tables_to_maintain

_CLEAN_INTERVAL_S: Final = 86_400.0
"""How often the folder of a table is listed for files that no snapshot refers to. Such files are kept for days."""
_SPARK_HAS_ENDED: Final = (Py4JError, OSError, AttributeError)
"""What is raised when Spark has ended, of which the application itself tells."""

logger = logging.getLogger(__name__)


class BackgroundMaintenance(Closing):
    """Maintains the lake tables whose options ask for it, while the application has nothing else to do.

    Args:
        only: The tables that may be maintained; an empty sequence for all tables.
        limits: What is worth doing, and how much of it is done at once.
        interval_s: How long a table is left alone after it was maintained, in seconds.
        planned: Takes the plan of each maintenance before its first step, in the thread of the maintenance.
        hear: Takes the result of each maintenance that changed something, in the same thread.
    """

    def __init__(
        self,
        client: TieringClient,
        spark: SparkSession,
        only: Sequence[TablePath],
        limits: MaintenanceLimits,
        *,
        interval_s: float,
        planned: Callable[[TablePath, Plan], None] = lambda path, plan: None,
        hear: Callable[[Maintenance], None] = lambda done: None,
    ) -> None:
        self._client = client
        self._spark = spark
        self._only = frozenset(only)
        self._limits = limits
        self._interval_s = interval_s
        self._planned = planned
        self._hear = hear
        self._thread: threading.Thread | None = None
        self._interruption = Interruption()
        self._next_look = 0.0
        self._tried: dict[TablePath, float] = {}
        self._done: dict[TablePath, float] = {}
        self._cleaned: dict[TablePath, float] = {}

    def begin_if_due(self) -> None:
        """Begin to maintain the tables that are due, if any may be and none is being maintained."""
        if self._is_running() or time.monotonic() < self._next_look:
            return
        self._interruption = Interruption()
        self._thread = threading.Thread(
            target=self._run, args=(self._interruption,), name="fluss-tiering-maintenance", daemon=True
        )
        self._thread.start()

    def give_way(self) -> None:
        """End the maintenance that is under way: its Spark jobs are cancelled, and what it committed stays."""
        self._interruption.ask()

    def close(self) -> None:
        """End the maintenance and wait for it."""
        self.give_way()
        if self._thread is not None:
            self._thread.join()

    def _is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _run(self, interruption: Interruption) -> None:
        try:
            for table, steps in self._due():
                self._maintain(table, steps, interruption)
                if interruption.is_asked:
                    # The rest is due when the application has nothing to do again.
                    return
        except FlussTieringError as error:
            logger.warning("lake tables are not maintained for now: %s", error.message)
        except _SPARK_HAS_ENDED as error:
            logger.warning("lake tables are not maintained for now: %s", type(error).__name__)
        self._next_look = time.monotonic() + self._interval_s

    def _due(self) -> list[tuple[TableInfo, frozenset[Step]]]:
        """Return the tables that are due. Those that were tried last, and perhaps gave way, come last."""
        now = time.monotonic()
        found = [
            (table, steps)
            for table, steps in tables_to_maintain(self._client, ())
            if not self._only or table.path in self._only
        ]
        due = [each for each in found if now - self._done.get(each[0].path, -self._interval_s) >= self._interval_s]
        return sorted(due, key=lambda each: self._tried.get(each[0].path, 0.0))

    def _maintain(self, table: TableInfo, steps: frozenset[Step], interruption: Interruption) -> None:
        path = table.path
        now = self._tried[path] = time.monotonic()
        if now - self._cleaned.get(path, -_CLEAN_INTERVAL_S) < _CLEAN_INTERVAL_S:
            steps -= {Step.CLEAN}
        try:
            done = maintain_table(
                self._client,
                self._spark,
                table,
                steps=steps,
                limits=self._limits,
                interruption=interruption,
                planned=lambda plan: self._planned(path, plan),
            )
        except _SPARK_HAS_ENDED:
            raise
        except Exception:
            # Otherwise this thread would end, and the next one would begin with the same at once.
            self._done[path] = now
            logger.exception("%s: maintenance failed, and is tried again in %g s", path, self._interval_s)
            return
        if not done.interrupted:
            self._done[path] = now
            if Step.CLEAN in steps:
                self._cleaned[path] = now
        if done.error is not None:
            logger.warning("%s: maintenance failed: %s", path, done.error)
        if done.did_something:
            self._hear(done)
        elif done.interrupted:
            logger.info("%s: maintenance gave way to a round", path)
