"""The users of tiering: runs of a DAG with their retries and late clean-up, writers, and operators."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from airflow_provider_fluss.attempt import release_lease
from airflow_provider_fluss.lease import LeaseHandle
from airflow_provider_fluss.outcome import Verdict, judge
from airflow_provider_fluss.submit_task import SubmitState
from fluss_tiering.client import lease_latest_snapshots
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import Column, DataType, TableBucket, TableDescriptor, TableInfo, TablePath
from fluss_tiering.model.table_options import LAKE_COMMIT_BRANCH, LAKE_DELETE_FILES
from simulation.driver import Driver
from simulation.network import Endpoint, SimClient
from simulation.scheduler import Process
from simulation.storage import Change

if TYPE_CHECKING:
    from simulation.world import World

_KEYS = 12
_LOG = logging.getLogger("simulation")
_COLUMNS = (Column("k", DataType.parse("BIGINT NOT NULL")), Column("v", DataType.parse("BIGINT")))
_DELETE_FILES = ("equality", "position")
_SUBMIT_ENDED = SubmitState("failed", ended=True, claims_over=True)


class DagRun:
    """One run of a DAG: acquire, submit, wait and release, with tries that overlap."""

    def __init__(self, world: World, number: int) -> None:
        self._world = world
        self._chance = random.Random(f"{world.seed}/dag/{number}")
        self._lease_id = f"airflow-{number}"
        self._process = Process(f"dag-{number}")
        self._client = SimClient(Endpoint(world.network, self._process))
        self._duration_ms = self._chance.choice((60_000, 300_000, 1_800_000, 21_600_000))
        self._drivers: list[Driver] = []

    def run(self) -> None:
        """Run all tries. The fiber ends with the DAG run."""
        paths = self._world.some_tables(self._chance)
        for _ in range(self._chance.choice((1, 2, 3))):
            handle = self._acquire(paths)
            if handle is None:
                return
            if self._happens(0.1):
                # The submit task is queued for longer than some leases last.
                self._world.scheduler.sleep(self._chance.randrange(3_600_000))
            self._submit(handle, paths)
            if self._happens(0.05):
                # Killed after the submit and before it was remembered: submitted twice.
                self._submit(handle, paths)
            verdict = self._wait(handle)
            if self._happens(0.2):
                # Its callback runs long after the next try began.
                late = self._chance.randrange(7_200_000)
                self._world.later(late, self._process, partial(self._release, handle))
            if verdict is Verdict.TIERED or self._happens(0.3):
                break
        if not self._happens(0.05):
            self._release(handle)

    def _happens(self, probability: float) -> bool:
        return self._chance.random() < probability * self._world.faults

    def _acquire(self, paths: Sequence[TablePath]) -> LeaseHandle | None:
        for _ in range(3):
            try:
                acquired = lease_latest_snapshots(self._client, self._lease_id, paths, self._duration_ms)
            except FlussTieringError:
                self._world.scheduler.sleep(self._chance.randrange(60_000))
                continue
            names = tuple(map(str, paths))
            return LeaseHandle(self._lease_id, acquired.attempt_token, names, self._duration_ms, "fluss")
        return None

    def _submit(self, handle: LeaseHandle, paths: Sequence[TablePath]) -> None:
        self._drivers.append(self._world.start_driver(paths, handle, self._duration_ms))

    def _wait(self, handle: LeaseHandle) -> Verdict:
        """Return the verdict; WAITING if the task is given up or cleared, or its driver has been gone for long."""
        patience = self._chance.choice((15_000, 60_000, 900_000)) if self._happens(0.3) else 900_000
        deadline = self._world.scheduler.now + patience
        while self._world.scheduler.now < deadline:
            self._world.scheduler.sleep(10_000)
            gone = not self._drivers[-1].alive
            try:
                outcome = self._client.lease_outcome(handle.lease_id, handle.attempt_token)
            except FlussTieringError:
                continue
            submit = _SUBMIT_ENDED if gone else None
            judgement = judge(outcome, handle.tables, handle.attempt_token, submit)
            if judgement.verdict is not Verdict.WAITING:
                return judgement.verdict
        return Verdict.WAITING

    def _release(self, handle: LeaseHandle) -> None:
        for _ in range(3):
            try:
                release_lease(self._client, handle, "released by its DAG run", _LOG)
            except FlussTieringError:
                self._world.scheduler.sleep(self._chance.randrange(60_000))
            else:
                return


class Operator:
    """Creates, alters and drops tables, and compacts lake tables."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = random.Random(f"{world.seed}/operator")
        self._created = 0

    def run(self, tables: int) -> None:
        """Keep this number of tables, each for a while."""
        world = self._world
        while world.faults:
            present = world.storage.tables()
            if world.server.process is not None:
                if len(present) < tables:
                    self._create()
                elif self._chance.random() < 0.5:
                    world.drop_table(self._chance.choice(present))
            for table in world.storage.tables():
                if self._chance.random() < 0.15:
                    world.lake.compact_slowly(str(table.path), self._chance.choice((0, 100, 5_000, 60_000)))
                if world.lake.content(str(table.path)).has_branch and self._chance.random() < 0.3:
                    world.publish(table)
                if self._chance.random() < 0.05:
                    world.storage.set_property(table.path, LAKE_DELETE_FILES.key, self._chance.choice(_DELETE_FILES))
            world.scheduler.sleep(self._chance.randrange(1_000 if len(present) < tables else 200_000))

    def _create(self) -> None:
        self._created += 1
        path = TablePath("db", f"t{self._created}")
        primary_key = ("k",) if self._chance.random() < 0.75 else ()
        freshness = self._chance.choice(("10s", "3min", "1h"))
        deletes = self._chance.choice(_DELETE_FILES)
        has_branch = self._chance.random() < 0.25
        is_clean = bool(primary_key) and random.Random(f"{self._world.seed}/clean/{path}").random() < 0.4
        table = self._world.server.create_table(
            path,
            TableDescriptor(
                columns=_COLUMNS,
                primary_key=primary_key,
                bucket_keys=primary_key,
                num_buckets=self._chance.choice((1, 2, 3)),
                properties={
                    "table.datalake.enabled": "true",
                    "table.datalake.freshness": freshness,
                    LAKE_DELETE_FILES.key: deletes,
                    **({LAKE_COMMIT_BRANCH.key: "audit"} if has_branch else {}),
                },
            ),
        )
        if table is not None:
            content = self._world.lake.content(str(path))
            content.has_branch, content.is_clean = has_branch, is_clean
            self._world.table_created(table)


class Writer:
    """Writes to one table as long as it exists."""

    def __init__(self, world: World, table: TableInfo) -> None:
        self._world = world
        self._table = table
        self._chance = random.Random(f"{world.seed}/writer/{table.table_id}")
        self._value = 0

    def run(self) -> None:
        """Write changes. Each has a value of its own, so that an old row differs from the last one."""
        storage = self._world.storage
        while self._world.faults and storage.has_table(self._table.table_id):
            # The first buckets get most, so that others have their first rows, and snapshots, much later.
            count = self._table.descriptor.num_buckets
            bucket = TableBucket(self._table.table_id, int(count * self._chance.random() ** 2))
            storage.append(bucket, [self._change(bucket.bucket) for _ in range(self._chance.randrange(1, 8))])
            self._world.scheduler.sleep(self._chance.randrange(500, 40_000))

    def _change(self, bucket: int) -> Change:
        self._value += 1
        if not self._table.has_primary_key:
            return Change(self._value, self._value)
        # A key is in one bucket only.
        key = self._chance.randrange(_KEYS) * self._table.descriptor.num_buckets + bucket
        return Change(key, None if self._chance.random() < 0.25 else self._value)
