"""SIGTERM and Ctrl-C end a command, also while it waits for the JVM: what it holds on the server is released."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from spark_support import driver_environment

from fluss_tiering.cli.lake.spark_session import spark_session
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket
from fluss_tiering.spark import maintenance_application
from fluss_tiering.spark.audit import verify
from fluss_tiering.spark.maintenance_options import VerifyOptions
from fluss_tiering.spark.startup import interrupts, session, workers
from waiting import WAIT_S, wait_until


@pytest.fixture(autouse=True)
def own_handler():
    """Fail the test, instead of ending pytest, if nobody handles SIGTERM."""

    def unhandled(*_: object) -> None:
        raise AssertionError("SIGTERM would have ended the process")

    before = signal.signal(signal.SIGTERM, unhandled)
    yield unhandled
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def without_spark(monkeypatch):
    started = nullcontext(SimpleNamespace(sparkContext=None))
    for module in (session, maintenance_application):
        monkeypatch.setattr(module, "own_session", lambda _master: started)
    for module in (workers, maintenance_application):
        monkeypatch.setattr(module, "shipped", lambda _context: nullcontext())


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_a_command_with_spark_ends_in_order(without_spark, own_handler):
    released = []

    def command() -> None:
        with spark_session("local[1]"), ExitStack() as stack:
            stack.callback(released.append, "lease")
            terminate()

    with pytest.raises(SystemExit) as ended:
        command()
    assert (ended.value.code, released) == (143, ["lease"])
    assert signal.getsignal(signal.SIGTERM) is own_handler


def test_the_maintenance_application_ends_in_order(without_spark, monkeypatch):
    client = SimpleNamespace(get_tables=lambda _: [SimpleNamespace(path="shop.orders")])
    monkeypatch.setattr(maintenance_application, "TieringClient", lambda _: nullcontext(client))
    monkeypatch.setattr(maintenance_application, "verify_table", lambda *_, **__: terminate())
    with pytest.raises(SystemExit) as ended:
        maintenance_application.run(VerifyOptions(server="127.0.0.1:1", tables=()))
    assert ended.value.code == 143


def test_an_error_of_a_broken_call_does_not_hide_the_signal():
    def command() -> None:
        with interrupts.ended_by_sigterm():
            # As pyspark does it where a call in its own `finally` fails.
            with suppress(SystemExit):
                terminate()
            interrupts.check_interrupt()

    with pytest.raises(SystemExit):
        command()
    interrupts.check_interrupt()


def test_another_thread_leaves_the_handler_alone(own_handler):
    found = []

    def look() -> None:
        with interrupts.ended_by_sigterm():
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [own_handler]


class Leases:
    """A client of which a signal breaks off a call, or of which the calls fail."""

    def __init__(self, raised: BaseException) -> None:
        self.held: set[str] = set()
        self.dropped = 0
        self._raised = raised

    def acquire_lease(self, lease_id: str, *_: object) -> object:
        self.held.add(lease_id)
        raise self._raised

    def drop_lease(self, lease_id: str) -> None:
        self.held.remove(lease_id)
        self.dropped += 1
        if isinstance(self._raised, FlussTieringError):
            raise FlussTieringError(ErrorCode.UNAVAILABLE, "cannot drop")


@pytest.mark.parametrize("raised", [KeyboardInterrupt(), SystemExit(143)])
def test_a_signal_while_verify_acquires_its_lease_drops_it(monkeypatch, raised):
    client = Leases(raised)
    with pytest.raises(type(raised)):
        planned(monkeypatch, client)
    assert (client.held, client.dropped) == (set(), 1)


def test_a_lease_that_cannot_be_dropped_does_not_hide_the_error(monkeypatch):
    with pytest.raises(FlussTieringError, match="no room"):
        planned(monkeypatch, Leases(FlussTieringError(ErrorCode.INVALID_REQUEST, "no room")))


def planned(monkeypatch, client: Leases) -> None:
    bucket = TableBucket(1, 0)
    monkeypatch.setattr(verify, "_snapshots", lambda *_: {bucket: SimpleNamespace(snapshot_id=7)})
    table = SimpleNamespace(has_primary_key=True)
    scope = SimpleNamespace(table=table, held=[], offsets={})
    with verify._source_plan(client, scope, verify.PlanLimits(parallelism=1), target="127.0.0.1:1"):
        pass


_WAITS = """
import sys, time
from pathlib import Path
from fluss_tiering.spark.startup.interrupts import check_interrupt
from fluss_tiering.spark.startup.session import own_session

folder = sys.argv[1]
try:
    with own_session("local[1]") as spark:
        try:
            spark.sparkContext.parallelize([0]).foreach(lambda _: (Path(folder, "begun").touch(), time.sleep(600)))
        except Exception as error:
            # pyspark asks the JVM while KeyboardInterrupt passes, and may get no answer. Whoever catches asks, too.
            check_interrupt()
            print("taken for a failure:", error)
        finally:
            # As pyspark does it where a call in its own `finally` fails.
            raise ValueError("hides the interrupt")
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.sampled(1)
@pytest.mark.system
@pytest.mark.slow
@pytest.mark.parametrize("whole_group", [False, True])
def test_ctrl_c_is_not_taken_for_the_failure_of_a_call(spark_jars: str, tmp_path: Path, whole_group: bool) -> None:
    # A terminal signals all processes of its group, also the workers.
    messages = tmp_path / "messages"
    with messages.open("wb") as told:
        process = subprocess.Popen(
            [sys.executable, "-c", _WAITS, str(tmp_path)],
            env=driver_environment(),
            stdout=told,
            stderr=told,
            start_new_session=True,
        )
    try:
        wait_until((tmp_path / "begun").exists)
        started = psutil.Process(process.pid).children(recursive=True)
        assert "java" in {each.name() for each in started}
        if whole_group:
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S) == 130
        # D24: no JVM stays behind.
        wait_until(lambda: not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in started))
    finally:
        process.kill()
    assert messages.read_text() == ""
