"""The JVM of a command: it ends with the command at every moment, and Spark's messages stay out of the way."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from spark_support import driver_environment

from engine_fixtures import server
from engine_support import ServerProcess, new_table
from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.spark.startup import jvm as jvm_module
from fluss_tiering.spark.startup.checks import check_master
from fluss_tiering.spark.startup.jvm import JvmProcess
from waiting import WAIT_S, wait_until

__all__ = ["server"]

COMMAND = str(Path(sys.executable).with_name("fluss-tiering"))


@dataclass(frozen=True)
class SilentRepository:
    """A repository that never answers, and the environment of a command whose Spark waits for it."""

    listener: socket.socket
    environment: dict[str, str]


@pytest.fixture
def silent_repository(tmp_path: Path) -> Iterator[SilentRepository]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(WAIT_S)
        settings = tmp_path / "ivy.xml"
        settings.write_text(
            '<ivysettings><settings defaultResolver="silent"/><resolvers><ibiblio name="silent" m2compatible="true" '
            f'root="http://127.0.0.1:{listener.getsockname()[1]}/"/></resolvers></ivysettings>'
        )
        conf = f"--conf spark.jars.ivySettings={settings} --conf spark.jars.ivy={tmp_path / 'ivy'}"
        environment = {**os.environ, "PYSPARK_SUBMIT_ARGS": f"{conf} pyspark-shell"}
        environment.pop("FLUSS_TIERING_SPARK_JARS", None)
        yield SilentRepository(listener, environment)


def begin(environment: dict[str, str], target: str, tmp_path: Path) -> subprocess.Popen[bytes]:
    with (tmp_path / "messages").open("wb") as messages:
        # Whoever runs the tests with `nohup` ignores SIGHUP, and so would the command.
        command = ["env", "--default-signal=HUP", COMMAND, "clean", "--server", target]
        return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=messages)


def jvm_of(command: subprocess.Popen[bytes]) -> psutil.Process | None:
    """Return the process that pyspark started, which is a shell first and then the JVM."""
    children = psutil.Process(command.pid).children()
    return children[0] if children else None


def ends_with_its_jvm(command: subprocess.Popen[bytes], jvm: psutil.Process, number: int, messages: Path) -> None:
    started = {jvm, *jvm.children(recursive=True)}
    command.send_signal(number)
    assert command.wait(WAIT_S) in (-number, 128 + number)
    wait_until(lambda: not [each for each in started if each.is_running() and each.status() != psutil.STATUS_ZOMBIE])
    told = messages.read_text()
    assert not re.search(r"Traceback|Exception|^\s+at \S+\(|Ivy|WARN|Using Spark", told, re.M), told


@pytest.mark.sampled(1)
@pytest.mark.system
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGHUP])
def test_no_jvm_stays_behind_when_spark_waits_for_its_packages(
    server: ServerProcess, silent_repository: SilentRepository, tmp_path: Path, number: int
) -> None:  # D24
    command = begin(silent_repository.environment, server.target, tmp_path)
    connection, _ = silent_repository.listener.accept()
    jvm = wait_until(lambda: jvm_of(command))
    assert jvm.name() == "java"
    ends_with_its_jvm(command, jvm, number, tmp_path / "messages")
    connection.close()


@pytest.mark.system
@pytest.mark.slow
@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.long), signal.SIGKILL])
def test_no_jvm_stays_behind_when_it_has_just_been_started(
    server: ServerProcess, silent_repository: SilentRepository, tmp_path: Path, number: int
) -> None:  # D24
    command = begin(silent_repository.environment, server.target, tmp_path)
    jvm = wait_until(lambda: jvm_of(command), every=0.001)
    ends_with_its_jvm(command, jvm, number, tmp_path / "messages")


@pytest.mark.long
@pytest.mark.system
@pytest.mark.slow
def test_a_command_that_succeeds_writes_lines_of_its_own_alone(
    server: ServerProcess, spark_jars: str, tmp_path: Path
) -> None:  # D26
    command = begin(driver_environment(), server.target, tmp_path)
    assert command.wait(WAIT_S) == 0
    lines = (tmp_path / "messages").read_text().splitlines()
    assert lines[0] == "Starting Spark with the master local[*] …"
    assert [line.partition(", after ")[0] for line in lines[1:]] == ["Spark has started"]


@pytest.mark.system
@pytest.mark.slow
def test_spark_that_cannot_start_is_one_line_with_its_last_words(server: ServerProcess, tmp_path: Path) -> None:  # D26
    environment = {**os.environ, "JAVA_HOME": str(tmp_path / "no-java")}
    done = subprocess.run(
        [COMMAND, "clean", "--server", server.target], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    *_, last = done.stderr.splitlines()
    assert last.startswith("error: Spark does not start with the master 'local[*]'")
    assert "no-java/bin/java: No such file or directory" in last
    assert "Traceback" not in done.stderr


@pytest.mark.system
@pytest.mark.slow
@pytest.mark.parametrize("command", ["tier", "expire"])
def test_a_master_that_does_not_exist_is_refused_at_once(server: ServerProcess, command: str) -> None:  # D26

    with TieringClient(server.target) as client:
        table = new_table(client, [1])
    arguments = [command, str(table.path), "--master", "spark://master.invalid:7077", "--server", server.target]
    done = subprocess.run([COMMAND, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 2, done.stderr
    assert "error: Spark's master spark://master.invalid:7077 cannot be reached (master.invalid:7077" in done.stderr


def test_masters_are_looked_for() -> None:  # D26
    check_master("local[2]")
    check_master("k8s://https://nowhere.invalid:1")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        check_master(f"spark://127.0.0.1:{port}")
        check_master(f"spark://nowhere.invalid:1,127.0.0.1:{port}")
    with pytest.raises(FlussTieringError, match=r"127\.0\.0\.1:\d+: Connection refused") as refused:
        check_master(f"spark://127.0.0.1:{port}")
    assert refused.value.code is ErrorCode.UNAVAILABLE
    for wrong in ("spark://", "spark://host:port", "spark://:7077"):
        with pytest.raises(FlussTieringError, match="is no address") as refused:
            check_master(wrong)
        assert refused.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.system
def test_last_words_leave_out_what_spark_always_says(tmp_path: Path) -> None:  # D26
    (tmp_path / "said").write_text(
        "The jars for the packages stored in: /a/jars\nx#y added as a dependency\nUsing Spark's default\n"
        "26/01/01 00:00:00 WARN Utils: x\nException: why\n\tat a.b(C.java:1)\nCaused by: y\n"
    )
    jvm = JvmProcess()
    started = jvm.start(["sh", "-c", f"cat {tmp_path / 'said'} >&2"], stdin=subprocess.PIPE)
    assert started.wait() == 0
    assert jvm.last_words() == "Exception: why"
    assert jvm.died()


@pytest.mark.system
@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("(sleep 1; echo why) &", "why"),
        ("exit 3", "its process ended with the exit code 3 and without a message"),
        ("kill -9 $$", "its process was ended by SIGKILL without a message: try again"),
        ("exit 137", "its process was ended by SIGKILL without a message: try again"),
    ],
)
def test_last_words_are_waited_for_and_tell_the_end_if_there_are_none(
    monkeypatch: pytest.MonkeyPatch, script: str, told: str
) -> None:
    monkeypatch.setattr(jvm_module, "_LAST_MESSAGES_S", WAIT_S)
    jvm = JvmProcess()
    jvm.start(["sh", "-c", script], stdin=subprocess.PIPE).wait()
    assert jvm.last_words() == told


@pytest.mark.system
def test_a_process_of_another_thread_does_not_end_with_that_thread() -> None:  # D24
    jvm = JvmProcess()
    started: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        jvm.__init__()  # type: ignore[misc]
        started.append(jvm.start(["sleep", "60"], stdin=subprocess.PIPE))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert not jvm.died()
    jvm.end()
    assert jvm.died()
