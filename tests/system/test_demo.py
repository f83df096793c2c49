"""`fluss-tiering demo`: what a newcomer runs first."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from examples.ports import free_ports
from waiting import wait_until

COMMAND = [str(Path(sys.executable).with_name("fluss-tiering")), "demo"]


@pytest.mark.system
def test_the_demo_tiers_twice_finds_all_rows_and_leaves_no_server(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (port,) = free_ports(1)
    ended = subprocess.run([*COMMAND, "--port", str(port)], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    rounds = re.findall(r"(First|Second) round: ([\d,]+) changes", ended.stdout)
    assert rounds == [("First", "1,000"), ("Second", "350")]
    assert "Every order is in the lake, once." in ended.stdout
    places = dict(re.findall(r"^(.+):\s+(/.*)$", ended.stdout, re.MULTILINE))
    assert all(Path(place).exists() for place in places.values())
    assert list(Path(places["Iceberg table"]).glob("**/*.parquet"))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


@pytest.mark.system
def test_a_port_that_is_used_is_told_before_anything_starts(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        ended = subprocess.run([*COMMAND, "--port", str(port)], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"error: port {port} cannot be used")
    assert not list(tmp_path.iterdir())


@pytest.mark.system
def test_a_demo_that_is_interrupted_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        with subprocess.Popen(COMMAND, stderr=subprocess.PIPE, text=True) as process:
            wait_until(lambda: any(log.stat().st_size for log in tmp_path.glob("*/server.log")), every=0.05)
            process.send_signal(number)
            assert process.stderr is not None
            assert re.search(r"^warning: interrupted: \S+ is deleted$", process.stderr.read(), re.MULTILINE)
        assert process.returncode == code
        assert not list(tmp_path.glob("fluss-tiering-demo-*"))
