"""Measures what the provider costs Airflow: parsing a DAG file, 500 deferred sensors, and the short tasks of a run."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

import psutil

from benchmarks.control import Figure, make_tables, running_server, table_path
from fluss_tiering.client import TieringClient

if TYPE_CHECKING:
    from airflow_provider_fluss.triggers.status import FlussTieringStatusTrigger

_HOUR_MS: Final = 3_600_000
_IMPORT_MS: Final = 100.0
_SHARE: Final = 0.1
_TASK_SECONDS: Final = 1.0
_BATCH: Final = 50
"""How many tables the example DAG gives to one application."""
HEAVY: Final = (
    *("grpc", "google.protobuf", "numpy", "pandas", "pyarrow", "pyspark", "rocksdict", "sqlalchemy.orm.decl_api"),
    *("fluss_tiering.api", "fluss_tiering.client", "fluss_tiering.formats", "openlineage"),
)
"""Modules that a DAG file must not load beyond what Airflow loads itself."""

_DAG_FILE: Final = """
from airflow.sdk import DAG
import airflow_provider_fluss as fluss

with DAG("tier", schedule="*/3 * * * *"):
    acquire = fluss.FlussAcquireKvSnapshotLeaseOperator(task_id="acquire", tables=["shop.orders"])
    submit = fluss.FlussTieringSparkOperator(task_id="submit", lease=acquire.output)
    wait = fluss.FlussTieringStatusSensor(task_id="wait", lease=acquire.output, submit_task_id="submit")
    release = fluss.FlussReleaseKvSnapshotLeaseOperator(task_id="release", lease=acquire.output)
    acquire >> [submit, wait] >> release.as_teardown(setups=acquire, on_failure_fail_dagrun=True)
"""
_PARSE: Final = """
import json, sys, time
# CPU time: other programs of the machine should not count.
marks = [time.process_time()]
def mark(): marks.append(time.process_time())
import airflow.sdk
airflow.sdk.DAG, airflow.sdk.BaseSensorOperator, airflow.sdk.BaseHook, airflow.sdk.BaseNotifier
mark()
before = set(sys.modules)
import airflow.providers.apache.spark.operators.spark_submit, airflow.triggers.base
mark()
theirs = set(sys.modules)
exec(compile({dag_file!r}, "dag.py", "exec"), {{"__name__": "dag"}})
mark()
own = sorted(set(sys.modules) - theirs)
print(json.dumps([[b - a for a, b in zip(marks, marks[1:])], own]))
"""


@dataclass(frozen=True, slots=True)
class AirflowSizes:
    """The number of deferred sensors, for how many seconds they are watched, and how often each task runs."""

    sensors: int = 500
    seconds: int = 60
    runs: int = 20
    parses: int = 7


def measure(sizes: AirflowSizes) -> Iterator[Figure]:
    """Yield the figures, one after the other."""
    yield from _parsing(sizes.parses)
    with tempfile.TemporaryDirectory(prefix="fluss-tiering-airflow-") as folder:
        data_dir = Path(folder) / "data"
        making = multiprocessing.get_context("spawn").Process(target=make_tables, args=(data_dir, sizes.sensors))
        making.start()
        making.join()
        with running_server(data_dir) as server, _airflow(Path(folder), server.target):
            yield from _tasks(min(_BATCH, sizes.sensors), sizes.runs)
            yield from _sensors(server.client, server.process.pid, sizes)


def _parsing(times: int) -> Iterator[Figure]:
    measured, own = [], []
    for _ in range(times):
        done = subprocess.run(
            [sys.executable, "-c", _PARSE.format(dag_file=_DAG_FILE)], capture_output=True, text=True, check=True
        )
        seconds, own = json.loads(done.stdout.splitlines()[-1])
        measured.append([each * 1e3 for each in seconds])
    sdk, theirs, ours = (statistics.median(column) for column in zip(*measured, strict=True))
    yield Figure("import airflow.sdk", f"{sdk:.0f} ms of CPU", "", kept=True)
    yield Figure("and the classes of Airflow that our operators extend", f"{theirs:.0f} ms more", "", kept=True)
    yield Figure(
        "and a DAG file with our operators", f"{ours:.0f} ms more", f"< {_IMPORT_MS:.0f} ms", ours < _IMPORT_MS
    )
    heavy = sorted(each for each in own if each in HEAVY)
    yield Figure(f"heavy modules among {len(own)} more", ", ".join(heavy) or "none", "none", not heavy)


def _tasks(tables: int, times: int) -> Iterator[Figure]:
    """Time the tasks of a run whose tables nobody has claimed yet."""
    from airflow_provider_fluss import (  # noqa: PLC0415 - Airflow takes seconds to import
        FlussAcquireKvSnapshotLeaseOperator,
        FlussReleaseKvSnapshotLeaseOperator,
        FlussTieringStatusSensor,
    )

    taken: dict[str, list[float]] = {"acquire": [], "wait, one look": [], "release": []}
    names = [str(table_path(number)) for number in range(tables)]

    @contextmanager
    def timed(name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        taken[name].append(time.perf_counter() - started)

    for run in range(times):
        context: Any = {"ti": _task_instance("acquire", f"run {run}"), "run_id": f"run {run}"}
        acquire = FlussAcquireKvSnapshotLeaseOperator(task_id="acquire", tables=names)
        with timed("acquire"):
            lease = acquire.execute(context)
        wait = FlussTieringStatusSensor(task_id="wait", lease=lease)
        with timed("wait, one look"):
            assert not wait.poke(context).is_done
        release = FlussReleaseKvSnapshotLeaseOperator(task_id="release", lease=lease)
        with timed("release"):
            release.execute(context)
    for name, seconds in taken.items():
        worst = max(seconds)
        work = f"{name}, {tables} tables, p50 and longest"
        yield Figure(
            work, f"{statistics.median(seconds):.3f} s, {worst:.3f} s", f"< {_TASK_SECONDS:g} s", worst < _TASK_SECONDS
        )


def _sensors(client: TieringClient, server: int, sizes: AirflowSizes) -> Iterator[Figure]:
    """Measure triggers in one event loop, as the triggerer runs them. Each waits for a table that nobody claims."""
    from airflow_provider_fluss import FlussTieringStatusTrigger  # noqa: PLC0415 - Airflow takes seconds to import

    triggers = []
    for number in range(sizes.sensors):
        lease = f"sensor {number}"
        attempt = client.acquire_lease(lease, _HOUR_MS, {}, allow_empty=True)
        xcom = {
            "lease_id": lease,
            "attempt_token": attempt.attempt_token,
            "tables": [str(table_path(number))],
            "lease_duration_ms": _HOUR_MS,
            "fluss_conn_id": "fluss_default",
        }
        submit = {
            "dag_id": "dag",
            "run_id": f"run {number // 10}",
            "task_id": "submit",
            "map_index": number % 10,
            "claim_timeout": 600,
        }
        triggers.append(FlussTieringStatusTrigger(xcom, 10, 300, submit))
    counted = asyncio.run(_watch(triggers, server, sizes.seconds))
    count = f"{sizes.sensors} deferred sensors"
    yield Figure(
        f"{count}: the triggerer's share of a core",
        f"{counted.share:.1%}",
        f"< {_SHARE:.0%}",
        counted.share < _SHARE,
    )
    yield Figure(f"{count}: the server's share of a core", f"{counted.server_share:.1%}", "", kept=True)
    yield Figure(f"{count}: channels of gRPC", f"{counted.channels}", "1", counted.channels == 1)
    yield Figure(f"{count}: questions to Airflow for submit tasks", f"{counted.looks:.1f} /s", "", kept=True)


@dataclass(slots=True)
class _Counted:
    share: float = 0.0
    server_share: float = 0.0
    channels: int = 0
    looks: float = 0.0


async def _watch(triggers: Sequence[FlussTieringStatusTrigger], server: int, seconds: int) -> _Counted:
    """Run the triggers until each has polled, and then for the given time."""
    import grpc.aio  # noqa: PLC0415

    counted = _Counted()
    open_channel = grpc.aio.insecure_channel

    def counting(*args: Any, **kwargs: Any) -> grpc.aio.Channel:
        counted.channels += 1
        return open_channel(*args, **kwargs)

    async def drain(trigger: FlussTieringStatusTrigger) -> None:
        async for event in trigger.run():
            raise AssertionError(f"a trigger fired: {event}")

    process, server_process = psutil.Process(), psutil.Process(server)
    with mock.patch.object(grpc.aio, "insecure_channel", counting):
        tasks = [asyncio.create_task(drain(trigger)) for trigger in triggers]
        await asyncio.sleep(2 * triggers[0].poll_interval)
        began, used, served, looked = time.perf_counter(), _cpu(process), _cpu(server_process), _looks[0]
        await asyncio.sleep(seconds)
        lasted = time.perf_counter() - began
        counted.share = (_cpu(process) - used) / lasted
        counted.server_share = (_cpu(server_process) - served) / lasted
        counted.looks = (_looks[0] - looked) / lasted
        for task in tasks:
            assert not task.done(), task.result()
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return counted


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


_looks = [0]
"""How many times Airflow's API was asked for the states of tasks."""


@contextmanager
def _airflow(folder: Path, target: str) -> Iterator[None]:
    """Stand for what Airflow gives to tasks and triggers: the connection, and its answers about submit tasks."""
    variables = {
        "AIRFLOW_HOME": str(folder / "airflow"),
        "AIRFLOW_CONN_FLUSS_DEFAULT": f"fluss://{target}",
        # A line for each sensor would hide the report.
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
    }
    with mock.patch.dict(os.environ, variables):
        from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance  # noqa: PLC0415

        def states(*, run_ids: Sequence[str], task_ids: Sequence[str], **_: object) -> dict[str, dict[str, str]]:
            _looks[0] += 1
            return {run: {f"{task}_{index}": "running" for task in task_ids for index in range(10)} for run in run_ids}

        with mock.patch.object(RuntimeTaskInstance, "get_task_states", states):
            yield


def _task_instance(task_id: str, run_id: str) -> SimpleNamespace:
    return SimpleNamespace(dag_id="dag", run_id=run_id, task_id=task_id, map_index=-1, try_number=1, max_tries=0)
