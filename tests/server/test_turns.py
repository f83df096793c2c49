"""The watch over the control thread, and what is left out and replaced in the server's log."""

from __future__ import annotations

import asyncio
import io
import logging
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from fluss_tiering.server import app
from fluss_tiering.server.core.threads import ServerThreads, TurnWatch
from fluss_tiering.server.logs import configure_logs
from fluss_tiering.server.settings.server_settings import ServerSettings, load_settings
from waiting import wait_until


class Seconds:
    """A monotonic clock that stands still until a test advances it."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def take(watch: TurnWatch, clock: Seconds, seconds: float) -> None:
    with watch.turn("a call"):
        clock.now += seconds


def test_the_longest_turn_of_the_last_minutes_is_shown() -> None:  # D5
    clock = Seconds()
    watch = TurnWatch(clock)
    assert watch.longest_s() == 0
    for seconds in (0.25, 2.0, 0.5):
        take(watch, clock, seconds)
    assert watch.longest_s() == 2
    clock.now += 61
    take(watch, clock, 0.5)
    assert watch.longest_s() == 2, "a scrape must not miss it"
    clock.now += 61
    assert watch.longest_s() == 0.5
    clock.now += 3600
    assert watch.longest_s() == 0


def test_a_turn_that_does_not_end_is_shown() -> None:  # D5
    clock = Seconds()
    watch = TurnWatch(clock)
    with watch.turn("a call"):
        clock.now += 500
        assert watch.longest_s() == 500
    assert watch.longest_s() == 500


def test_the_turns_of_the_control_thread_are_watched() -> None:  # D5
    threads, entered, go_on = ServerThreads(), threading.Event(), threading.Event()

    def hold() -> None:
        entered.set()
        go_on.wait()

    def run() -> None:
        asyncio.run(threads.control(hold))

    holder = threading.Thread(target=run)
    holder.start()
    entered.wait()
    wait_until(lambda: threads.turns.longest_s() > 0.01)
    go_on.set()
    holder.join()
    threads.close()


def test_a_server_gets_the_interpreter_back_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # D5
    before = sys.getswitchinterval()
    seen: list[float] = []

    async def serve(_settings: ServerSettings) -> None:
        seen.append(sys.getswitchinterval())

    monkeypatch.setattr(app, "_run", serve)
    monkeypatch.setattr(app, "configure_logs", lambda *_: None)
    monkeypatch.setattr("os.umask", lambda _: 0)
    try:
        app.run(load_settings(data_dir=tmp_path))
    finally:
        sys.setswitchinterval(before)
    assert seen == [pytest.approx(0.0005)]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    root, written = logging.getLogger(), io.StringIO()
    handlers, level = root.handlers, root.level
    monkeypatch.setattr("sys.stderr", written)
    configure_logs("json", "INFO")
    yield written
    root.handlers, root.level = handlers, level


def test_only_lines_about_lost_clients_are_left_out(log: io.StringIO) -> None:
    grpc = logging.getLogger("grpc._cython.cygrpc")
    grpc.error("ExecuteBatchError raised in core by servicer method [%s]", "/fluss_tiering.v1.Tables/FetchLog")
    assert log.getvalue() == ""
    grpc.error("Unexpected [KeyError] raised by servicer method [/fluss_tiering.v1.Tables/FetchLog]")
    assert "KeyError" in log.getvalue()


@pytest.mark.usefixtures("log")
def test_control_characters_do_not_reach_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("logfmt", "INFO")
    structlog.get_logger("test").warning("round failed", error="\x1b[2J\x9b31m\x07oops", caller="CN=\x1b]0;title")
    written = capsys.readouterr().err
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", written)
    assert "\N{REPLACEMENT CHARACTER}[2J" in written
    assert "oops" in written


@pytest.mark.usefixtures("log")
def test_fields_without_a_value_are_left_out_of_lines_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("logfmt", "INFO")
    structlog.get_logger("test").info("ready", fluss=None, port=0, audit_log=None)
    written = capsys.readouterr().err
    assert "port=0" in written
    assert "fluss" not in written
    assert "audit_log" not in written
    configure_logs("json", "INFO")
    structlog.get_logger("test").info("ready", fluss=None)
    assert '"fluss": null' in capsys.readouterr().err
