"""A server says what guards it, and keeps its files from others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from certificates import Authority
from engine_support import ServerProcess, ServerThread, new_table
from fluss_tiering.client import TieringClient
from fluss_tiering.server.app import guards_of, warn_of_open_folder
from fluss_tiering.server.settings.server_settings import load_settings
from token_support import add_tokens


def test_the_ready_line_says_what_guards_a_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ServerThread(tmp_path / "open"):
        pass
    assert "guarded_by=nothing" in capsys.readouterr().out
    authority = Authority(tmp_path / "ca")
    pair = authority.pair("server", "server")
    add_tokens(tmp_path / "tokens.json", {"admin": ["admin"]})
    with ServerThread(
        tmp_path / "guarded",
        tls_cert_file=pair.cert,
        tls_key_file=pair.key,
        tokens_file=tmp_path / "tokens.json",
        audit_log=str(tmp_path / "audit.jsonl"),
    ):
        pass
    logged = capsys.readouterr().out
    assert "guarded_by='tls, tokens'" in logged
    assert f"audit_log={tmp_path}/audit.jsonl" in logged


def test_each_guard_is_named(tmp_path: Path) -> None:
    settings = load_settings(
        data_dir=tmp_path,
        tls_cert_file=tmp_path / "cert",
        tls_key_file=tmp_path / "key",
        tls_client_ca_file=tmp_path / "ca",
        tokens_file=tmp_path / "tokens",
        access_file=tmp_path / "access",
        oidc_issuer="https://login.example.com",
        oidc_audience="fluss-tiering",
    )
    assert guards_of(settings) == "tls, client certificates, tokens, oidc"


@pytest.mark.system
@pytest.mark.slow
def test_nobody_else_reads_what_a_server_writes(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        server = ServerProcess(tmp_path / "server").start()
    finally:
        os.umask(before)
    try:
        with TieringClient(server.target) as client:
            new_table(client, range(10))
        # The log is a file of the test's own.
        written = [each for each in (tmp_path / "server").rglob("*") if each != server.log_file]
        assert any(each.name == "server.db" for each in written)
        assert {str(each): oct(each.stat().st_mode) for each in written if each.stat().st_mode & 0o077} == {}
        assert "others on this machine" not in server.log_file.read_text()
    finally:
        server.kill()


def test_a_folder_that_others_may_read_is_warned_of(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    with capture_logs() as logged:
        warn_of_open_folder(folder)
        assert logged == []
        folder.chmod(0o750)
        warn_of_open_folder(folder)
    assert [(each["path"], each["mode"]) for each in logged] == [(str(folder), "0750")]
