"""An interruption of maintenance: somebody asks that it ends, and its Spark jobs are cancelled."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Iterator
from typing import Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

_AGAIN_S: Final = 0.1


class Interrupted(Exception):  # noqa: N818 - it is no error: the rest is done another time
    """The maintenance was asked to end."""


class Interruption:
    """Says whether maintenance may go on, and cancels its Spark jobs when it may not. Any thread may use it."""

    def __init__(self) -> None:
        self._asked = threading.Event()

    def ask(self) -> None:
        """Ask the maintenance to end as soon as possible."""
        self._asked.set()

    @property
    def is_asked(self) -> bool:
        """Whether somebody has asked the maintenance to end."""
        return self._asked.is_set()

    def check(self) -> None:
        """Go on, or raise Interrupted if somebody has asked the maintenance to end."""
        if self._asked.is_set():
            raise Interrupted

    @contextlib.contextmanager
    def jobs(self, spark: SparkSession) -> Iterator[None]:
        """Cancel the Spark jobs that this thread starts in the block once the maintenance is asked to end.

        Raises:
            Interrupted: The maintenance was asked to end before the block or in it, and the block failed.
        """
        self.check()
        context = spark.sparkContext
        # Iceberg gives its jobs job groups of its own. It leaves tags alone, which threads hand on to those they start.
        tag = f"fluss-tiering-maintenance-{uuid.uuid4()}"
        context.addJobTag(tag)
        ended = threading.Event()
        watcher = threading.Thread(
            target=self._cancel, args=(spark, tag, ended), name="fluss-tiering-cancel", daemon=True
        )
        watcher.start()
        try:
            yield
        except Exception:
            self.check()
            raise
        finally:
            ended.set()
            watcher.join()
            with contextlib.suppress(Py4JError, OSError, AttributeError):  # Spark may have ended
                context.removeJobTag(tag)

    def _cancel(self, spark: SparkSession, tag: str, ended: threading.Event) -> None:
        while not ended.wait(_AGAIN_S):
            if self._asked.is_set():
                # Jobs that begin later are cancelled by the next call.
                with contextlib.suppress(Py4JError, OSError, AttributeError):
                    spark.sparkContext.cancelJobsWithTag(tag)
