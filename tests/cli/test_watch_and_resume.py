"""What the command shows of statuses as they change, and how it ends the rest of failed tables: S13, S19, S20."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from engine_support import ServerProcess, new_table
from fluss_tiering.cli import watch
from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import HeartbeatEntry, TieringState, TieringStatus
from waiting import WAIT_S

PROGRAM = str(Path(sys.executable).with_name("fluss-tiering"))


def fail(client, path, times=1):
    for _ in range(times):
        (claim,) = client.claim_tables([path], "cli-lease", None, "driver-1")
        client.heartbeat(failed=[HeartbeatEntry(claim.table_id, claim.tiering_epoch, "no space left\nat line 2")])


@contextmanager
def watching(
    server: str, *arguments: str, terminal: bool = False
) -> Iterator[tuple[Callable[[str], str], subprocess.Popen]]:
    """`status --watch` in a pipe or a terminal; what it printed until a pattern, and the process."""
    ours, theirs = pty.openpty() if terminal else os.pipe()
    # Not a child of this shell's job: a Ctrl-C is sent to it alone.
    process = (
        subprocess.Popen(
            [PROGRAM, "status", "--watch", "--server", server, *arguments],
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "COLUMNS": "160", "TERM": "xterm"},
        )
        if terminal
        else subprocess.Popen(
            [PROGRAM, "status", "--watch", "--server", server, *arguments], stdout=theirs, stderr=theirs
        )
    )
    os.close(theirs)
    printed = b""

    def until(pattern: str) -> str:
        nonlocal printed
        deadline = time.monotonic() + WAIT_S
        while not (found := re.search(pattern, printed.decode(errors="replace"), re.MULTILINE)):
            ready, _, _ = select.select([ours], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"no {pattern!r} in {printed.decode()!r}"
            try:
                chunk = os.read(ours, 65536)
            except OSError:
                chunk = b""
            assert chunk, f"ended without {pattern!r}: {printed.decode()!r}"
            printed += chunk
        text, printed = printed[: found.end()].decode(errors="replace"), printed[found.end() :]
        return text

    try:
        yield until, process
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_a_parked_table_says_how_to_go_on(command, client):  # S19
    table = new_table(client)
    fail(client, table.path, times=10)
    answer = command("status", table.path)
    assert " Parked " in answer.out
    assert f"then run `fluss-tiering resume {table.path}`" in answer.out
    (status,) = json.loads(command("status", table.path, "--json").out)
    assert (status["parked"], status["next_retry_time"], status["consecutive_failures"]) == (True, None, 10)
    (refused,) = client.claim_tables([table.path], "cli-lease", None, "driver-1")
    assert "no space left;" in refused.message
    assert str(table.path) in command("resume", "--parked").out
    (status,) = json.loads(command("status", table.path, "--json").out)
    assert (status["status"], status["parked"], status["consecutive_failures"]) == ("Pending", False, 0)


def test_each_table_is_resumed_on_its_own(command, client):  # S19
    failed, healthy = new_table(client), new_table(client)
    fail(client, failed.path)
    answer = command("resume", healthy.path, "cli.nowhere", failed.path)
    assert answer.code == 1
    assert f"{healthy.path} has not failed: it is Scheduled." in answer.out
    assert "cli.nowhere: table cli.nowhere does not exist" in answer.out
    assert f"{failed.path} is Pending." in answer.out
    assert command("resume").refuses(2, "--parked")
    assert command("resume", failed.path, "--parked").refuses(2, "--parked")


def test_options_are_set_and_reset(command, client):  # S20
    table = new_table(client, freshness="3min")
    answer = command("tables", "alter", table.path, "--set", "table.datalake.freshness=1h", "--set", "team=a")
    assert re.search("table.datalake.freshness +1h", answer.out)
    assert command("tables", "alter", table.path, "--reset", "table.datalake.freshness").code == 0
    (info,) = client.get_tables([table.path])
    assert info.descriptor.properties == {"table.datalake.enabled": "true", "team": "a"}
    for arguments, words in (
        ((), ("nothing to change", "--set KEY=VALUE", "--reset KEY")),  # D30
        (("--set", "a.b=1", "--set", "a.b=2"), ("--set sets 'a.b' twice",)),
        (("--set", "team"), ("--set 'team'", "KEY=VALUE")),
        (("--set", "team=b", "--reset", "team"), ("'team'",)),
        (("--set", "table.datalake.freshness=soon"), ("'soon'",)),
        (("--set", "table.log.arrow.compression.type=NONE"), ("cannot be altered", "rows are stored")),
        (("--set", "iceberg.format-version=2"), ("cannot be altered", "in the lake")),
    ):
        assert command("tables", "alter", table.path, *arguments).refuses(2, *words)
    assert command("tables", "alter", "cli.nowhere", "--set", "a=b").refuses(1, "cli.nowhere")
    assert client.get_tables([table.path]) == [info]


@pytest.mark.system
def test_a_pipe_gets_a_line_for_each_change_over_a_restart(tmp_path):
    server = ServerProcess(tmp_path).start()
    with TieringClient(server.target) as client:
        table, other = new_table(client), new_table(client)
        with watching(server.target) as (until, process):
            until(rf"{table.path}  Scheduled  epoch 0$")
            until(rf"{other.path}  Scheduled  epoch 0$")
            fail(client, table.path)
            until(rf"{table.path}  Failed  epoch 1  no space left$")
            server.kill()
            until("waiting for the server")
            server.start()
            with TieringClient(server.target) as again:
                again.resume_tables([table.path])
                seen = until(rf"{table.path}  Pending  epoch 2  no space left$")
                assert str(other.path) not in seen, "what did not change is not shown again"
                again.drop_table(other.path)
            until(rf"{other.path}  is not tiered any more$")
            process.send_signal(signal.SIGINT)
            assert process.wait(WAIT_S) == 130
    server.stop()


@pytest.mark.system
def test_json_lines_for_programs(server, client):
    table = new_table(client)
    with watching(server.target, str(table.path), "--json") as (until, _):
        assert json.loads(until(r"\}$"))["status"] == "Scheduled"
        fail(client, table.path)
        failed = json.loads(until(r'^.*"status": "Failed".*\}$').splitlines()[-1])
        assert (failed["last_error"], failed["parked"]) == ("no space left\nat line 2", False)
        client.drop_table(table.path)
        removed = {"database_name": table.path.database, "table_name": table.path.table, "status": None}
        assert json.loads(until(r"null\}$")) == removed


@pytest.mark.system
def test_a_terminal_shows_the_table_as_it_stands(server, client):
    table = new_table(client)
    with watching(server.target, str(table.path), terminal=True) as (until, process):
        until("Scheduled")
        fail(client, table.path, times=10)
        until("Parked")
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S) == 130


def test_a_watch_of_failing_tables_tells_their_recovery_too(capsys):  # E30
    path, other = TablePath("db", "t"), TablePath("db", "healthy")
    healthy = TieringStatus(1, other, TieringState.SCHEDULED, 0, 1)
    fails = TieringStatus(2, path, TieringState.PENDING, 0, 2, last_error="boom", consecutive_failures=1)
    seen = [{other: healthy}, {other: healthy, path: fails}]
    tiered = replace(fails, state=TieringState.SCHEDULED, last_error=None, consecutive_failures=0)
    seen += [{other: healthy, path: tiered}, {path: replace(tiered, tiering_epoch=3)}]
    watch._print_changes(iter(seen), failing=True, json=False)
    told = [re.split("  +", line)[1:] for line in capsys.readouterr().out.splitlines()]
    assert told == [["db.t", "Pending", "epoch 2", "boom"], ["db.t", "Scheduled", "epoch 2"]]


def test_an_outage_is_told_once(client, monkeypatch, capsys):
    watched = client.watch_tiering_statuses
    outages = iter([False, True, True, True, False, True, True, False])

    def watch_once(paths):
        if next(outages):
            raise FlussTieringError(ErrorCode.UNAVAILABLE, "cannot reach it")
        with closing(watched(paths)) as changes:
            yield next(changes)

    monkeypatch.setattr(client, "watch_tiering_statuses", watch_once)
    monkeypatch.setattr(watch, "_PAUSE_S", 0)
    path = new_table(client).path
    with closing(watch._statuses(client, path)) as seen:
        for told in (0, 1, 1):
            assert path in next(seen)
            assert capsys.readouterr().err == "cannot reach it; waiting for the server\n" * told


@pytest.mark.slow
def test_a_watch_that_cannot_begin_is_refused(command):
    assert command("status", "cli.nowhere", "--watch").refuses(1, "cli.nowhere")
    assert command("status", "--watch", "--server", "127.0.0.1:9").refuses(2, "127.0.0.1:9")
