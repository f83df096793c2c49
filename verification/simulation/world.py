"""One run of the simulation: it joins all parts, ends the run, and reports it."""

from __future__ import annotations

import hashlib
import logging
import random
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import structlog
from google.protobuf.message import Message

from airflow_provider_fluss.lease import LeaseHandle
from fluss_tiering.lake.iceberg import table as iceberg_table
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import TableInfo, TablePath
from fluss_tiering.server.core.store.store import SqlTieringStore
from fluss_tiering.spark.maintenance.publish import publish
from fluss_tiering.spark.round import round as spark_round
from fluss_tiering.spark.round import shared_stage
from simulation.actors import DagRun, Operator, Writer
from simulation.checks import Checks
from simulation.driver import Driver, ModelSpark
from simulation.flink import FlinkTiering
from simulation.key_index import ModelKeyIndexes
from simulation.lake import ModelLake, NoStatistics, SimCatalog, live_data_files
from simulation.network import Endpoint, Network, SimClient
from simulation.scheduler import Process, Scheduler
from simulation.server import SimServer
from simulation.storage import ROW_BYTES, ModelStorage
from simulation.store import FaultyStore, MemoryStore

_TABLES = 12
_DAGS = 6
_TRACE = 60
_REST_MS = 9_000_000
"""Longer than anything that may still happen: late messages, paused drivers, heartbeats that time out."""
_LAST_ROUNDS = 6


@dataclass(frozen=True, slots=True)
class Report:
    """The report of one run."""

    seed: int
    counters: dict[str, int]
    violation: str | None
    trace: tuple[str, ...]
    digest: str


class World:
    """All parts of one run."""

    def __init__(self, seed: int, *, sql: bool = False) -> None:
        self.seed = seed
        self.faults = 1.0
        self.scheduler = Scheduler()
        self.storage = ModelStorage(self.scheduler, retained_snapshots=1)
        self.lake = ModelLake(self.scheduler, self._chance("lake"))
        self.store = FaultyStore(
            SqlTieringStore.open(Path(":memory:")) if sql else MemoryStore(), self._chance("store")
        )
        self._trace: deque[tuple[int, str, str, Message | None]] = deque(maxlen=_TRACE)
        self._digest = hashlib.sha256()
        self.indexes = ModelKeyIndexes(self.lake, self._chance("indexes"))
        self.spark = ModelSpark(self.scheduler, self.storage, self.lake, self.indexes, self._chance("spark"))
        self.checks = Checks(self)
        self.server = SimServer(self.scheduler, self.storage, self.store, self._chance("server"), self.checks)
        self.network = Network(self.scheduler, self.server, self._chance("network"))
        self.flink = FlinkTiering(self)
        self._fates = self._chance("fates")
        self._dags = 0
        self._drivers: list[tuple[Process, Driver]] = []
        self._outside = Process("outside")
        self.counters = {"drivers killed": 0, "drivers paused": 0}

    def run(self, rounds: int, on_progress: Callable[[int], None] = lambda rounds: None) -> Report:
        """Run until so many rounds have begun, then without faults until all is at rest, and compare everything."""
        with _simulated(self):
            self.server.start()
            self.scheduler.spawn(self._outside, Operator(self).run, _TABLES)
            for _ in range(_DAGS):
                self.scheduler.spawn(self._outside, self._dag_runs)
            self.scheduler.spawn(self._outside, self._own_drivers)
            self.scheduler.spawn(self._outside, self.flink.run)
            self.scheduler.spawn(self._outside, self._crash_server)
            begun = self.checks.tiering.counters
            shown = 0

            def enough() -> bool:
                nonlocal shown
                if begun["rounds"] - shown >= 50:
                    shown = begun["rounds"]
                    on_progress(shown)
                return self.checks.violation is not None or shown >= rounds or begun["rounds"] >= rounds

            self.scheduler.run(enough)
            if self.checks.violation is None:
                self._come_to_rest()
        trace = tuple(
            f"{now} {who}: {what} {' '.join(str(message or '').split())}".rstrip()
            for now, who, what, message in self._trace
        )
        return Report(self.seed, self._counters(), self.checks.violation, trace, self._digest.hexdigest())

    # What actors use

    def note(self, who: object, what: str, message: Message | None = None) -> None:
        """Add a line to the trace. All lines make the run's digest."""
        self._digest.update(f"{self.scheduler.now} {who}: {what}".encode())
        if message is not None:
            # Sorted, since some messages list what comes out of a set, whose order is another one in each process.
            self._digest.update(bytes(sorted(message.SerializeToString(deterministic=True))))
        self._trace.append((self.scheduler.now, str(who), what, message))

    def later(self, delay_ms: int, process: Process, action: Callable[[], object]) -> None:
        self.scheduler.after(delay_ms, lambda: self.scheduler.spawn(process, action))

    def some_tables(self, chance: random.Random) -> list[TablePath]:
        while not (tables := self.storage.tables()):
            self.scheduler.sleep(1_000)
        return [table.path for table in chance.sample(tables, min(len(tables), chance.choice((1, 1, 2, 4))))]

    def table_created(self, table: TableInfo) -> None:
        self.checks.lake.created(table, self.storage)
        self.scheduler.spawn(self._outside, Writer(self, table).run)

    def drop_table(self, table: TableInfo) -> None:
        self.note("operator", f"drops {table.path}")
        self.checks.leases.forget_table(table.table_id)
        self.server.drop_table(table.path)

    def start_driver(self, paths: Sequence[TablePath], handle: LeaseHandle | None, duration_ms: int) -> Driver:
        """Start a driver that may be killed or paused."""
        process = Process(f"driver-{len(self._drivers) + 1}")
        round_rows = self._fates.choice((None, None, 3, 10)) if self.faults else None
        endpoint = Endpoint(self.network, process)
        driver = Driver(self.scheduler, process, endpoint, spark=self.spark, lake=self.lake, round_rows=round_rows)
        self._drivers.append((process, driver))
        self.scheduler.spawn(process, driver.run, paths, handle, duration_ms)
        if self._fates.random() < 0.25 * self.faults:
            self.scheduler.after(int(10 ** self._fates.uniform(0.5, 5)), lambda: self._kill(process, driver))
        if self._fates.random() < 0.25 * self.faults:
            self.scheduler.after(int(10 ** self._fates.uniform(0.5, 5)), lambda: self._pause(process))
        return driver

    def publish(self, table: TableInfo) -> None:
        """Publish what rounds have committed to the branch of a table, in a process that may be killed or paused."""
        process = Process(f"publish {table.path}")
        self.scheduler.spawn(process, self._publish, process, table)
        if self._fates.random() < 0.25 * self.faults:
            self.scheduler.after(self._fates.randrange(1, 1_000), lambda: self.scheduler.kill(process))

    def _publish(self, process: Process, table: TableInfo) -> None:
        catalog: Any = SimCatalog(self.lake)
        # The next try goes on from whatever this one did.
        with suppress(FlussTieringError):
            publish(SimClient(Endpoint(self.network, process)), catalog, table)

    # Faults

    def _kill(self, process: Process, driver: Driver) -> None:
        if process.alive and not driver.ended.is_set():
            self.counters["drivers killed"] += 1
            self.note(process, "is killed")
            self.scheduler.kill(process)

    def _pause(self, process: Process) -> None:
        if process.alive:
            self.counters["drivers paused"] += 1
            process.pause(self.scheduler.now + int(10 ** self._fates.uniform(3, 6.8)))
            self.note(process, f"is paused until {process.paused_until}")

    def _crash_server(self) -> None:
        while self.faults:
            self.scheduler.sleep(int(self._fates.expovariate(1 / 200_000)))
            if self.faults and self.server.process is not None:
                self.server.crash(self._fates.choice((100, 5_000, 60_000)))

    # Load

    def _dag_runs(self) -> None:
        while self.faults:
            self._dags += 1
            dag = DagRun(self, self._dags)
            self.scheduler.sleep(self._fates.randrange(20_000))
            dag.run()

    def _own_drivers(self) -> None:
        while self.faults:
            tables = self.some_tables(self._fates) if self._fates.random() < 0.7 else []
            self.start_driver(tables, None, self._fates.choice((60_000, 600_000)))
            self.scheduler.sleep(self._fates.randrange(60_000))
            self.server.resume_parked()

    # The end

    def _come_to_rest(self) -> None:
        for part in (self, self.network, self.store, self.lake, self.indexes, self.spark):
            part.faults = 0.0
        self._run_for(_REST_MS)
        for _ in range(_LAST_ROUNDS):
            # A whole lake is not enough: its last commit may be one that no round has told the server of yet.
            behind = [
                table
                for table in self.storage.tables()
                if not self.checks.lake.is_complete(table)
                or not self.checks.lake.is_registered(table, self.server.managers)
            ]
            if not behind:
                break
            self.server.resume_parked()
            for table in behind:
                self.start_driver([table.path], None, 600_000)
            self._run_for(600_000)
            for table in behind:
                if self.lake.content(str(table.path)).has_branch:
                    self.publish(table)
            self._run_for(600_000)
        if self.checks.violation is None:
            self.checks.at_rest()

    def _run_for(self, duration_ms: int) -> None:
        end = self.scheduler.now + duration_ms
        self.scheduler.run(lambda: self.checks.violation is not None or self.scheduler.now >= end)

    def _chance(self, name: str) -> random.Random:
        return random.Random(f"{self.seed}/{name}")

    def _counters(self) -> dict[str, int]:
        components: tuple[Any, ...] = (
            self.checks.tiering,
            self.lake,
            self.indexes,
            self.flink,
            self,
            self.network,
            self.server,
            self.store,
            self.spark,
            self.checks.lake,
        )
        return {name: count for part in components for name, count in part.counters.items()} | {
            "recovered snapshots": self.checks.recovered,
            "steps": self.scheduler.steps,
        }


@contextmanager
def _simulated(world: World) -> Iterator[None]:
    """Make random numbers depend on the seed alone, keep the logs quiet, and replace what Iceberg reads of files.

    The application's clock, threads and Spark are handed to its objects, where a driver is made.
    """
    chance = random.Random(f"{world.seed}/uuid")
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.disable(logging.CRITICAL)
    random.seed(world.seed)
    with ExitStack() as stack:
        patch = mock.patch.object
        stack.enter_context(patch(uuid, "uuid4", lambda: uuid.UUID(int=chance.getrandbits(128))))
        stack.enter_context(patch(iceberg_table, "write_file_without_rows", world.spark.write_file_without_rows))
        stack.enter_context(patch(iceberg_table, "ContentFiles", NoStatistics))
        stack.enter_context(patch(iceberg_table, "live_data_files", live_data_files))
        stack.enter_context(patch(shared_stage, "_SMALL_BYTES", 8 * ROW_BYTES))
        stack.enter_context(patch(spark_round, "open_offsets_reader", lambda *_: world.storage.lake_offsets))
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)
            structlog.configure(**before)
