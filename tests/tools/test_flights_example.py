"""How the flights example starts programs: on free ports, and none is taken for another."""

from __future__ import annotations

import socket
import sys

import psutil
import pytest

from examples.flights.__main__ import up
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
