"""Runs Fluss's own tiering service, a process with Flink's mini cluster, and reads its rounds from its log."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import java_programs
from examples.flights.processes import Processes, Started
from fluss_tiering.model.table import TableInfo

PARALLELISM: Final = 2

_SOURCE: Final = Path(__file__).parent / "java" / "FlinkTiering.java"
_CLAIMED: Final = re.compile(r"^(\d+) Tiering table \((\d+),\d+,\S+\) has been requested", re.MULTILINE)
_FINISHED: Final = re.compile(r"^(\d+) Got FinishedTieringEvent for tiering table (\d+)\.", re.MULTILINE)
_FAILED: Final = re.compile(r"^\d+ Tiering table (\d+) is failed, fail reason is (.*)$", re.MULTILINE)
_LOG4J: Final = """\
rootLogger.level = WARN
rootLogger.appenderRef.out.ref = Out
logger.tiering.name = org.apache.fluss.flink.tiering.source.enumerator
logger.tiering.level = INFO
appender.out.name = Out
appender.out.type = Console
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{UNIX_MILLIS} %m%n
"""


class FlinkTiering:
    """Fluss's tiering service as a process.

    Args:
        folder: The folder for class files, settings and logs.
        bootstrap: The address of the Fluss cluster.
        lake_catalog: The settings of the Iceberg catalog, without a prefix.
        poll: How often the service asks the cluster for a table. Fluss's own default is 30 s.
    """

    name = "Flink"

    def __init__(
        self,
        folder: Path,
        bootstrap: str,
        lake_catalog: Mapping[str, str],
        class_path: Sequence[Path],
        poll: str = "200ms",
    ) -> None:
        self._folder = folder
        self._arguments = [
            *("--fluss.bootstrap.servers", bootstrap),
            *("--fluss.tiering.poll.table.interval", poll),
            *("--datalake.format", "iceberg"),
            *(part for key, value in lake_catalog.items() for part in (f"--datalake.iceberg.{key}", value)),
        ]
        self._starts = 0
        self._processes: Processes | None = None
        self._started: Started | None = None
        self._class_path = [folder / "classes", *class_path]
        java_programs.compile_into(folder / "classes", [_SOURCE], class_path)
        (folder / "log4j2.properties").write_text(_LOG4J)

    def start(self) -> None:
        """Start the service and return at once."""
        self._starts += 1
        self._processes = Processes(self._folder / f"run-{self._starts}")
        # The number of cores becomes Flink's default parallelism.
        jvm = [
            f"-XX:ActiveProcessorCount={PARALLELISM}",
            f"-Dlog4j2.configurationFile={self._folder}/log4j2.properties",
        ]
        command = java_programs.java_command("FlinkTiering", self._arguments, self._class_path, jvm)
        self._started = self._processes.start("flink", command, {})

    def stop(self) -> None:
        """End the service."""
        if self._processes is not None:
            self._processes.stop()
            self._processes = None

    def pids(self) -> Sequence[int]:
        """Return the processes of the service, without their children."""
        return [] if self._started is None else [self._started.pid]

    def claim_time(self, table: TableInfo, after: float) -> float | None:
        """Return when the service first got the table after that time, in seconds since the epoch, or None."""
        return _first_time(_CLAIMED, self.log(), table, after)

    def finish_time(self, table: TableInfo, after: float) -> float | None:
        """Return when a round of the table first ended after that time, in seconds since the epoch, or None."""
        return _first_time(_FINISHED, self.log(), table, after)

    def failure(self) -> str | None:
        """Return why a round failed; None if none did."""
        failed = _FAILED.search(self.log())
        return None if failed is None else failed[2]

    def log(self) -> str:
        """Return everything that the service has logged since its last start."""
        return "" if self._started is None else Path(self._started.log).read_text(errors="replace")


def _first_time(pattern: re.Pattern[str], log: str, table: TableInfo, after: float) -> float | None:
    times = (int(found[1]) / 1000 for found in pattern.finditer(log) if int(found[2]) == table.table_id)
    return next((each for each in times if each > after), None)
