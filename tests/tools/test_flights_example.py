"""How the flights example starts programs: on free ports, and none is taken for another."""

from __future__ import annotations

import shutil
import socket
import sys
import threading

import psutil
import pytest

from examples.flights.__main__ import run, up
from examples.flights.disk import enough_space
from examples.flights.processes import Processes


@pytest.mark.parametrize("taken", ["server", "airflow"])
def test_a_port_that_is_taken_is_named_before_anything_starts(tmp_path, taken):
    with socket.socket() as listening, socket.socket() as free:
        for each in (listening, free):
            each.bind(("127.0.0.1", 0))
        listening.listen()
        ports = {"server_port": free.getsockname()[1], "airflow_port": free.getsockname()[1]}
        free.close()
        port = listening.getsockname()[1]
        with pytest.raises(SystemExit, match=f"port {port} .*--{taken}-port PORT"):
            up(folder=tmp_path, **{**ports, f"{taken}_port": port})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.system
def test_a_program_that_ended_is_not_ready_although_another_one_answers(tmp_path):
    processes = Processes(tmp_path)
    ended = processes.start("server", [sys.executable, "-c", "raise SystemExit('port in use')"], {})
    processes._children[ended.pid].wait()
    with pytest.raises(SystemExit, match="server ended with exit code 1:\nport in use"):
        processes.wait_until(ended, lambda: True, 60)
    processes.stop()


@pytest.mark.system
def test_programs_are_found_after_the_wall_clock_was_set(tmp_path, monkeypatch):
    Processes(tmp_path).start("server", [sys.executable, "-c", "import time; time.sleep(600)"], {})
    boot_time = psutil.boot_time()
    monkeypatch.setattr(psutil, "boot_time", lambda: boot_time + 107)
    monkeypatch.setattr(psutil._pslinux, "boot_time", psutil.boot_time)
    found = Processes(tmp_path)
    (server,) = found.running
    process = psutil.Process(server.pid)
    found.stop()
    assert not process.is_running()


def with_free_bytes(monkeypatch, free: list[int]) -> None:
    """Let each look at a disk find the next number of free bytes, and the last one from then on."""
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=free.pop(0) if free[1:] else free[0]))


def test_a_run_without_enough_space_does_not_begin(tmp_path, monkeypatch):
    with_free_bytes(monkeypatch, [100 << 20])
    with pytest.raises(
        SystemExit, match=rf"disk of {tmp_path} has 100 MiB left: expected at least 512 MiB; .*--folder"
    ):
        run(folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_run_that_waits_ends_when_a_disk_gets_full(tmp_path, monkeypatch):
    with_free_bytes(monkeypatch, [2 << 30, 2 << 30, 2 << 30, 1 << 20])
    with (
        pytest.raises(SystemExit, match=f"disk of {tmp_path} is full, with 1 MiB left: free space there"),
        enough_space(tmp_path),
    ):
        threading.Event().wait()


@pytest.mark.parametrize("failed", [OSError(28, "No space left on device"), RuntimeError("x"), SystemExit("error: x")])
def test_what_failed_since_a_disk_is_full_says_so(tmp_path, monkeypatch, failed):
    with_free_bytes(monkeypatch, [2 << 30, 0])
    with pytest.raises(SystemExit, match=f"disk of {tmp_path} is full, with 0 MiB left"), enough_space(tmp_path):
        raise failed


def test_what_failed_on_a_disk_with_space_is_told_as_it_is(tmp_path):
    with pytest.raises(RuntimeError, match="x"), enough_space(tmp_path, needed=1):
        raise RuntimeError("x")
