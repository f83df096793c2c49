"""Connections with tokens and certificates: which values are refused, and what the Test button tells."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from guarded_server import GuardedServer
from provider_support import require_unusable
from refusals import refused

from airflow_provider_fluss.hooks.fluss import FlussHook
from certificates import Authority
from engine_support import ServerThread
from fluss_tiering.model.errors import ErrorCode

SECRET = "flt_planted_in-a-password"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedServer]:
    with GuardedServer(tmp_path_factory.mktemp("guarded")) as server:
        yield server


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"password": "two words"}, "has a password that is no token: expected printable ASCII"),
        ({"password": SECRET, "extra": {"token_file": "/token"}}, "has a password and token_file in its extra"),
        ({"password": SECRET, "host": "h.example"}, "has a token, but tls is not set in its extra"),
        ({"extra": {"token_file": "token"}}, "has token_file 'token' in its extra: expected the absolute path"),
        ({"extra": {"token_file": 7}}, "has token_file 7 in its extra: expected the absolute path"),
        ({"extra": {"token_file": "/no/such"}}, "has a wrong token_file in its extra (the token cannot be read"),
        ({"extra": {"tls_ca": "/no/such"}}, "has a wrong tls_ca in its extra (/no/such cannot be read"),
        ({"extra": {"tls_ca": "/etc/hostname"}}, "has a wrong tls_ca in its extra (/etc/hostname is not in PEM"),
        ({"extra": {"tls_cert": "/c.pem"}}, "has only one of tls_cert and tls_key in its extra: expected both"),
        ({"extra": {"tls_key": "/c.key"}}, "has only one of tls_cert and tls_key in its extra: expected both"),
        ({"extra": {"tls": "perhaps"}}, "has tls 'perhaps' in its extra: expected true or false"),
        ({"extra": {"tlsca": "/ca.pem"}}, "has 'tlsca' in its extra: expected 'tls_ca'."),
        ({"extra": {"tls": 1}}, "has tls 1 in its extra: expected true or false"),
        ({"extra": {"tls": False, "tls_ca": "/ca.pem"}}, "has tls false and tls_ca in its extra: expected tls true"),
        ({"extra": {"allow_insecure": "maybe"}}, "has allow_insecure 'maybe' in its extra: expected true or false"),
    ],
)
async def test_a_wrong_field_is_named_and_no_secret(monkeypatch, fields, told):
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", json.dumps({"conn_type": "fluss", "host": "127.0.0.1", **fields}))
    error = await require_unusable("other", re.escape(f"Connection 'other' {told}"))
    assert SECRET not in repr(error)


def test_a_token_may_be_sent_without_tls_only_if_that_is_allowed(monkeypatch):
    fields = {"conn_type": "fluss", "host": "h.example", "password": SECRET, "extra": {"allow_insecure": True}}
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", json.dumps(fields))
    FlussHook("other").get_client().close()
    security = FlussHook("other").get_security()
    assert security is not None
    assert SECRET not in repr(security) + str(security.environment())


def test_the_test_button_tells_certificate_identity_and_success_apart(monkeypatch, guarded, tmp_path):
    def tested(password: str | None = None, **extra: object) -> tuple[bool, str]:
        monkeypatch.setenv("AIRFLOW_CONN_OTHER", guarded.connection(password, **extra))
        return FlussHook("other").test_connection()

    assert tested(guarded.tokens["reader"])[0]
    works, message = tested("flt_000000000000_wrong")
    assert not works
    assert message.startswith("The server does not know who calls: ")
    assert "flt_000000000000_wrong" not in message
    assert tested()[1].startswith("The server does not know who calls: ")
    stranger = Authority(tmp_path / "stranger", "stranger")
    works, message = tested(guarded.tokens["reader"], tls_ca=str(stranger.cert))
    assert not works
    assert message.startswith("The TLS handshake failed: ")
    assert "CERTIFICATE_VERIFY_FAILED" in message
    works, message = tested(guarded.tokens["reader"], tls_ca="")
    assert not works
    assert message.startswith("The server closed the connection. Perhaps it expects TLS (tls)")


def test_the_test_button_tells_certificates_of_clients_apart(monkeypatch, tmp_path):
    authority = Authority(tmp_path / "ca")
    server, known, stranger = (authority.pair(name, name) for name in ("server", "known", "stranger"))
    access = tmp_path / "access.toml"
    access.write_text('[[grants]]\nidentity = "certificate/CN=known"\nrole = "reader"\n')
    settings = {"tls_cert_file": server.cert, "tls_key_file": server.key, "tls_client_ca_file": authority.cert}
    with ServerThread(tmp_path / "data", access_file=access, **settings) as running:

        def tested(**paths: Path) -> tuple[bool, str]:
            extra = {"timeout": 10, "tls_ca": str(authority.cert), **{name: str(path) for name, path in paths.items()}}
            fields = {"conn_type": "fluss", "host": "127.0.0.1", "port": running.server.port, "extra": extra}
            monkeypatch.setenv("AIRFLOW_CONN_OTHER", json.dumps(fields))
            return FlussHook("other").test_connection()

        assert tested(tls_cert=known.cert, tls_key=known.key)[0]
        works, message = tested(tls_cert=stranger.cert, tls_key=stranger.key)
        assert not works
        assert message.startswith("The identity lacks a role: certificate/CN=stranger ")
        works, message = tested()
        assert not works
        assert message.startswith("The server closed the connection. "), message
        assert "has a wrong tls_key in its extra" in tested(tls_cert=known.cert, tls_key=stranger.key)[1]


def test_the_test_button_tells_of_a_certificate_for_another_name(monkeypatch, tmp_path):
    authority = Authority(tmp_path / "ca")
    named = authority.pair("named", "named", host="tiering.example.com")
    with ServerThread(tmp_path / "data", tls_cert_file=named.cert, tls_key_file=named.key) as running:
        fields = {"conn_type": "fluss", "host": "127.0.0.1", "port": running.server.port}
        monkeypatch.setenv("AIRFLOW_CONN_OTHER", json.dumps({**fields, "extra": {"tls_ca": str(authority.cert)}}))
        works, message = FlussHook("other").test_connection()
    assert not works
    assert message.startswith("The TLS handshake failed: ")
    assert "its certificate is for another name" in message


def test_a_uri_and_a_file_do_as_well(monkeypatch, guarded, tmp_path):
    file = tmp_path / "token"
    file.write_text(f"{guarded.tokens['reader']}\n")
    extra = f"tls=True&tls_ca={guarded.authority.cert}&timeout=10"
    address = guarded.target
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", f"fluss://{address}?{extra}&token_file={file}")
    assert FlussHook("other").list_tiering_statuses() == []
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", f"fluss://:{guarded.tokens['reader']}@{address}?{extra}")
    assert FlussHook("other").list_tiering_statuses() == []


def test_a_connection_is_not_mixed_with_the_environment(monkeypatch, guarded):
    monkeypatch.setenv("FLUSS_TIERING_TOKEN", guarded.tokens["admin"])
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", guarded.connection())
    with refused(ErrorCode.AUTHENTICATION):
        FlussHook("other").list_tiering_statuses()
    # A connection without credentials uses those of the environment.
    monkeypatch.setenv("FLUSS_TIERING_TLS_CA", str(guarded.authority.cert))
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", f"fluss://{guarded.target}")
    assert FlussHook("other").list_tiering_statuses() == []


async def test_other_credentials_have_other_shared_clients(monkeypatch, guarded):
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", guarded.connection(guarded.tokens["reader"]))
    hook = FlussHook("other")
    async with hook.share_async_client() as first, hook.share_async_client() as second:
        assert second is first
        assert await first.list_tiering_statuses() == []
        # As when somebody puts another token into the connection.
        monkeypatch.setenv("AIRFLOW_CONN_OTHER", guarded.connection("flt_000000000000_wrong"))
        async with hook.share_async_client() as third:
            assert third is not first
            with refused(ErrorCode.AUTHENTICATION):
                await third.list_tiering_statuses()
