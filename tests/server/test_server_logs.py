"""The server's log: what is left out of it, and what is replaced in it."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator

import pytest
import structlog

from fluss_tiering.server.logs import configure_logs


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
