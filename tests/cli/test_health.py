"""`fluss-tiering health`, as probes call it."""

from __future__ import annotations

import socket

import pytest

from certificates import Authority
from engine_support import ServerThread


def test_a_server_that_answers_is_serving(command):
    for arguments in ([], ["--active"]):
        answer = command("health", *arguments)
        assert (answer.code, answer.out, answer.err) == (0, "SERVING\n", "")


@pytest.fixture
def standby(tmp_path):
    """A server whose services another one serves."""
    with ServerThread(tmp_path / "data") as running:
        running.run(running.server._listener.set_serving(False))
        yield running


def test_a_standby_server_is_serving_but_not_active(command, standby):
    assert command("health", "--server", standby.target).out == "SERVING\n"
    answer = command("health", "--active", "--server", standby.target)
    assert (answer.code, answer.out) == (1, "NOT_SERVING\n")


def test_no_server_is_an_error(command):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        assert command("health", "--server", f"127.0.0.1:{unused.getsockname()[1]}").refuses(2, "cannot reach")


def test_no_token_is_needed(command, tmp_path):
    assert command("token", "create", "ci", "--file", str(tmp_path / "tokens"), "--role", "reader").code == 0
    with ServerThread(tmp_path / "data", tokens_file=tmp_path / "tokens") as running:
        assert command("status", "--server", running.target).code == 1
        assert command("health", "--server", running.target).code == 0


@pytest.fixture
def mutual(tmp_path):
    """A server with a certificate for another name than its address, which asks clients for theirs."""
    authority = Authority(tmp_path / "ca")
    pair = authority.pair("server", "server", host="tiering.example.com")
    access = tmp_path / "access.toml"
    access.write_text("grants = []\n")
    settings = {"tls_cert_file": pair.cert, "tls_key_file": pair.key, "tls_client_ca_file": authority.cert}
    with ServerThread(tmp_path / "data", access_file=access, **settings) as running:
        yield running, authority


def test_the_name_of_the_certificate_may_be_another_one_than_that_of_the_address(command, mutual, monkeypatch):
    running, authority = mutual
    probe = authority.pair("probe", "probe")
    for name, path in {"CA": authority.cert, "CERT": probe.cert, "KEY": probe.key}.items():
        monkeypatch.setenv(f"FLUSS_TIERING_TLS_{name}", str(path))
    asked = ["health", "--server", running.target]
    assert command(*asked).refuses(2, "TLS handshake")
    assert command(*asked, "--tls-name", "other.example.com").refuses(2, "TLS handshake")
    assert command(*asked, "--tls-name", "tiering.example.com").out == "SERVING\n"
    monkeypatch.setenv("FLUSS_TIERING_HEALTH_TLS_NAME", "tiering.example.com")
    assert command(*asked).out == "SERVING\n"


def test_a_server_with_mutual_tls_asks_the_probe_for_a_certificate(command, mutual, monkeypatch):
    running, authority = mutual
    monkeypatch.setenv("FLUSS_TIERING_TLS_CA", str(authority.cert))
    asked = ["health", "--server", running.target, "--tls-name", "tiering.example.com"]
    assert command(*asked).refuses(2, "client certificate")
