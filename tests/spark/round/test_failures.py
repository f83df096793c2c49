"""Every kind of failure really happens: the first line of the status names its cause, within a bounded time (S10).

A failed round keeps nothing and affects no other table. See also test_lease_life.py (missing snapshots)
and test_outcomes.py.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
import pytest
from held_writer import HeldStage
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from spark_support import Tiering, in_background, lake_server, named

from engine_support import ServerProcess
from fault_proxy import FaultProxy, refused
from fluss_tiering.client import TieringClient, lease_latest_snapshots
from fluss_tiering.lake.iceberg import catalog as catalog_module
from fluss_tiering.lake.iceberg.table import IcebergTable
from fluss_tiering.lake.protocol import LakeFileWriter, PieceWriter
from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.table import TableInfo
from fluss_tiering.model.tiering import TieringState
from fluss_tiering.spark.round.stage import failure_of
from needs import needs
from waiting import WAIT_S, wait_until

ROWS = named(range(10), "row")


@pytest.fixture(scope="module")
@needs("server")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Yield a server that waits only seconds for a silent driver."""
    server = lake_server(
        tmp_path_factory.mktemp("strict"),
        FLUSS_TIERING_HEARTBEAT_TIMEOUT="3s",
        FLUSS_TIERING_HEARTBEAT_CHECK_INTERVAL="200ms",
    ).start()
    yield server
    assert server.stop() == 0


@pytest.fixture
def lake(strict: ServerProcess, spark) -> Iterator[Tiering]:
    with TieringClient(strict.target) as client:
        yield Tiering(client, spark, strict.target)


def written(tiering: Tiering, **options) -> TableInfo:
    table = tiering.table(**options)
    tiering.write(table, ROWS)
    return table


def tier_once_heard(lake: Tiering, table: TableInfo) -> None:
    """Run rounds until one succeeds: on a slow machine a driver may be silent for longer than this server waits."""
    while (error := lake.tier_all(table)[0].error) is not None:
        assert "heartbeat timed out after" in str(error)


def last_error(tiering: Tiering, table: TableInfo) -> str:
    """Return the error of the status, which may be Pending again, and check that the failed round has it too."""
    (status,) = tiering.client.list_tiering_statuses(table.path)
    assert status.state in {TieringState.FAILED, TieringState.PENDING}
    assert status.last_error_time is not None
    newest, *_ = tiering.rounds(table)
    assert (newest.state, newest.error) == (TieringState.FAILED, status.last_error)
    return status.last_error


class CatalogThatRefuses(BaseHTTPRequestHandler):
    """Iceberg's REST catalog, as it answers to a wrong password."""

    def do_GET(self) -> None:
        body = b'{"error": {"message": "Bad password of user lake", "type": "NotAuthorizedException", "code": 401}}'
        self.send_response(401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_HEAD = do_GET  # noqa: N815 - named by the base class

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def refusing_catalog() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), CatalogThatRefuses)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def silent_catalog() -> Iterator[str]:
    """Yield the address of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def of_catalog(name: str, uri: str) -> dict[str, str]:
    """Return table options for a REST catalog of the table's own instead of the server's."""
    prefix = "table.datalake.iceberg."
    return {f"{prefix}type": "rest", f"{prefix}name": name, f"{prefix}uri": uri, f"{prefix}warehouse": "w"}


# S10: bad credentials; Fluss #2360: one bad table stops all
def test_a_lake_that_refuses_the_credentials(tiering: Tiering, refusing_catalog):
    bad = written(tiering, properties=of_catalog("refuses", refusing_catalog))
    log, keyed, dropped = written(tiering, primary_key=False), written(tiering), tiering.table()
    tiering.client.drop_table(dropped.path)
    tables = [log, bad, dropped, keyed]

    results = tiering.tier_all(*tables)

    assert [result.path for result in results] == [table.path for table in tables]
    assert [result.failed for result in results] == [False, True, True, False]
    assert tiering.lake_rows(log) == tiering.lake_rows(keyed) == sorted(ROWS.items())
    assert str(dropped.path) in results[2].error
    error = last_error(tiering, bad)
    assert (error, results[1].recorded) == (results[1].error, True)
    assert error.startswith(
        "the lake refused the credentials given: NotAuthorizedException: Not authorized: Bad password"
    )
    assert "\n" not in error


# S10: a lake that hangs; without a limit of ours it would hang the round for ever
def test_a_lake_that_does_not_answer_fails_the_round_in_bounded_time(tiering: Tiering, silent_catalog, monkeypatch):
    monkeypatch.setitem(catalog_module._REST_TIME_LIMITS, "rest.client.socket-timeout-ms", "500")
    bad = written(tiering, properties=of_catalog("silent", silent_catalog))
    began = time.monotonic()

    tiering.tier_all(bad)

    assert time.monotonic() - began < WAIT_S
    assert last_error(tiering, bad).startswith("the lake cannot be reached: SocketTimeoutException")


class Killed(LakeFileWriter):
    """A worker that is killed in each of its attempts."""

    def __init__(self, writer: LakeFileWriter) -> None:
        self._writer = writer

    def open_piece(self, bucket: int, location: str, attempt: int, *partition: tuple[str, ...]) -> PieceWriter:
        os.kill(os.getpid(), signal.SIGKILL)
        return self._writer.open_piece(bucket, location, attempt, *partition)


# S10: executor killed
def test_a_worker_that_is_killed_again_and_again(tiering: Tiering, monkeypatch):
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    file_writer = IcebergTable.file_writer
    monkeypatch.setattr(IcebergTable, "file_writer", lambda table: Killed(file_writer(table)))
    table = written(tiering)

    tiering.tier_all(table)

    assert last_error(tiering, table).startswith("a Spark executor's Python worker died, killed or out of memory")


# S4, S5, S10, Fluss #2648: a driver that is killed or cut off falls silent; a round that timed out commits nothing more
def test_a_round_whose_heartbeats_do_not_arrive(lake: Tiering, tmp_path, monkeypatch):
    table = written(lake)
    with FaultProxy(lake.target) as proxy:
        proxy.faults["LakeTieringHeartbeat"] = refused(grpc.StatusCode.UNAVAILABLE, "cut off")
        held = HeldStage(tmp_path, monkeypatch)
        tiered = in_background(Tiering(lake.client, lake.spark, proxy.target), table)
        # On a slow machine the round ends before it has a stage.
        wait_until(lambda: held.holds or tiered.done())  # E39
        wait_until(lambda: lake.rounds(table)[0].state is TieringState.FAILED)
        proxy.faults.clear()
        held.go()
        (result,) = tiered.result(120)

    assert result.failed
    assert last_error(lake, table).startswith("heartbeat timed out after")
    assert lake.snapshots(table) == []
    monkeypatch.undo()
    tier_once_heard(lake, table)
    assert lake.lake_rows(table) == sorted(ROWS.items())


# Fluss #3562: the results of a round that was taken over are never part of its successor's
def test_the_files_of_two_rounds_of_a_table_never_mix(tiering: Tiering, tmp_path, monkeypatch):
    table = written(tiering, primary_key=False)
    lease = lease_latest_snapshots(tiering.client, "two rounds", [table.path], 60_000)
    options = {"lease_id": "two rounds", "attempt_token": lease.attempt_token}
    with monkeypatch.context() as patched:
        held = HeldStage(tmp_path, patched)
        first = in_background(tiering, table, **options)
        held.wait()
    second = tiering.round(table, named(range(10, 20), "row"), **options)
    held.go()

    assert first.result(120)[0].failed
    assert tiering.lake_rows(table) == sorted(named(range(20), "row").items())
    assert {f"-e{second.epoch}-" in file for file in tiering.files(table)} == {True}


# S10: executor killed, as a cluster's scheduler says it
def test_an_executor_that_was_lost_is_named_with_its_reason():
    text = (
        "An error occurred while calling o1.collectAsArrowToPython.\n: org.apache.spark.SparkException: Job aborted "
        "due to stage failure: Task 0 in stage 3.0 failed 4 times, most recent failure: Lost task 0.3 in stage 3.0 "
        "(TID 9) (10.0.0.7 executor 2): ExecutorLostFailure (executor 2 exited caused by one of the running tasks) "
        "Reason: Command exited with code 137\nDriver stacktrace:\n\tat org.apache.spark.scheduler.DAGScheduler"
    )

    assert failure_of(PySparkException(text)).message == (
        "a Spark executor was lost: executor 2 exited caused by one of the running tasks: Command exited with code 137"
        "; it was killed, most often for lack of memory: raise spark.executor.memoryOverhead, or give executors fewer "
        "cores"
    )


def test_a_python_of_a_worker_that_does_not_start_is_told_with_what_to_set() -> None:
    traceback = '  Traceback (most recent call last):\n    File "runpy.py", line 185, in _run\n      code = _get()\n'
    for text, said in {
        f"org.apache.spark.SparkException: \nError from python worker:\n{traceback}  SyntaxError: invalid syntax\n"
        "PYTHONPATH was:\n  /opt/pyspark.zip\n": "SyntaxError: invalid syntax",
        'Lost task 0.3: java.io.IOException: Cannot run program "/no/python": error=2, No such file or directory\n'
        "\tat java.base": 'Cannot run program "/no/python": error=2, No such file or directory',
    }.items():
        assert failure_of(PySparkException(text)).message == (
            f"a Spark worker's Python did not start: {said}. Set PYSPARK_PYTHON to a Python of the driver's version on "
            "each worker."
        )


@pytest.mark.parametrize(
    "said",
    [
        "PermissionError: [Errno 1] Failed to open local file '/lake/f'. Detail: [errno 1] Operation not permitted",
        "PermissionError: [Errno 13] Failed to open local file '/lake/f'. Detail: [errno 13] Permission denied",
        "OSError: [Errno 30] Failed to open local file '/lake/f'. Detail: [errno 30] Read-only file system",
    ],
    ids=["immutable", "without rights", "read-only"],
)
def test_a_folder_that_executors_cannot_write_to_is_told_with_what_to_look_at(said: str) -> None:
    text = f'Traceback (most recent call last):\n  File "pieces.py", line 90, in _do\n{said}\n\n\tat org.apache'
    message = failure_of(PySparkException(text)).message
    assert message.startswith(f"a Spark task failed: {said}; expected files that Spark's executors may")
    assert "immutable (lsattr)" in message


def test_what_can_be_done_is_told() -> None:
    for said, told in {
        "OSError: [Errno 28] Detail: [errno 28] No space left on device": "; expected room for the files of the lake",
        "pyspark.errors.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has another.": " Set PYSPARK",
    }.items():
        text = f'Traceback (most recent call last):\n  File "pieces.py", line 90, in _do\n{said}\n\n\tat org.apache'
        assert failure_of(PySparkException(text)).message.startswith(f"a Spark task failed: {said}{told}")


def test_the_reason_is_a_workers_last_line_whatever_its_error_is_called():
    text = (
        "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n"
        ": org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 66.0 failed 2 times\n"
        "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        '  File "pieces.py", line 90, in _do\n'
        '  File "pyarrow/error.pxi", line 92, in pyarrow.lib.check_status\n'
        "pyarrow.lib.ArrowInvalid: Column 'c0' is declared non-nullable but contains nulls\n"
        "\n\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException\n"
    )

    assert failure_of(PySparkException(text)).message == (
        "a Spark task failed: pyarrow.lib.ArrowInvalid: Column 'c0' is declared non-nullable but contains nulls"
    )


def test_the_error_that_a_worker_of_ours_raised_is_told_as_it_is():
    text = (
        "Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times\n"
        "pyspark.errors.PythonException: Traceback (most recent call last):\n"
        '  File "reader.py", line 3, in read\n'
        "fluss_tiering.model.errors.FlussTieringError: bucket 0 of table 7: the first\n"
        "fluss_tiering.model.errors.FlussTieringError: bucket 1 of table 7: the last\n"
        "\n\tat org.apache.spark.api.python\n"
    )
    assert failure_of(PySparkException(text)).message == "bucket 1 of table 7: the last"


def test_an_error_without_a_word_is_told_by_its_name():
    assert failure_of(PySparkException("")).message == "a Spark task failed: PySparkException"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "Task 0 failed\norg.apache.spark.SparkException: Python worker exited unexpectedly (crashed)",
            "out of memory",
        ),
        ("Task 0 failed\nMemoryError: cannot allocate\n\tat org.apache", ": MemoryError: cannot allocate"),
        (
            "Job 3 cancelled because SparkContext was shut down\n\tat org.apache",
            ": Job 3 cancelled because SparkContext",
        ),
        (
            (
                "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n"
                ": org.apache.spark.SparkException: [SPARK_JOB_CANCELLED] Job 3 cancelled as part of its group.\n"
                "\tat org.apache.spark"
            ),
            "a Spark job failed: [SPARK_JOB_CANCELLED] Job 3 cancelled as part of its group.",
        ),
    ],
)
def test_other_failures_are_told_in_one_line(text: str, said: str):
    failure = failure_of(PySparkException(text))
    assert failure.code is ErrorCode.UNKNOWN
    assert said in failure.message
    assert "\n" not in failure.message
    assert "\tat" not in failure.message
