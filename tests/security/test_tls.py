"""TLS and mutual TLS of the gRPC port, with a real authority, and certificates that are swapped under load."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, tzinfo
from pathlib import Path

import pytest

from certificates import Authority, Pair
from engine_support import ServerThread
from fluss_tiering.client import TieringClient
from fluss_tiering.client.security import ClientSecurity
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.server.edge.callers import certificates
from fluss_tiering.server.services import lake_tiering
from fluss_tiering.server.settings.server_settings import load_settings
from waiting import wait_until

pytestmark = pytest.mark.slow

NO_TABLE = TablePath("no", "table")
ACCESS = """
[[grants]]
identity = "certificate/CN=reader"
role = "reader"

[[grants]]
identity = "certificate-uri/spiffe://shop/admin"
role = "admin"
"""


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


def settings_of(pair: Pair, **others: object) -> dict[str, object]:
    return {"tls_cert_file": pair.cert, "tls_key_file": pair.key, **others}


@pytest.fixture
def server(tmp_path: Path, authority: Authority) -> Iterator[ServerThread]:
    with ServerThread(tmp_path / "data", **settings_of(authority.pair("server", "server"))) as running:
        yield running


def trusting(authority: Authority, pair: Pair | None = None) -> ClientSecurity:
    return ClientSecurity(
        tls=True,
        ca=authority.cert.read_bytes(),
        cert=pair.cert.read_bytes() if pair else None,
        key=pair.key.read_bytes() if pair else None,
    )


def refused(target: str, security: ClientSecurity, call: Callable[[TieringClient], object] | None = None) -> ErrorCode:
    with TieringClient(target, timeout=5, security=security) as client, pytest.raises(FlussTieringError) as error:
        (call or TieringClient.list_tiering_statuses)(client)
    return error.value.code


def test_who_trusts_the_authority_is_answered_and_nobody_else(
    server: ServerThread, authority: Authority, tmp_path: Path
) -> None:
    with TieringClient(server.target, security=trusting(authority)) as client:
        assert client.list_tiering_statuses() == []
    assert refused(server.target, trusting(Authority(tmp_path / "other", "other"))) is ErrorCode.UNAVAILABLE
    assert refused(server.target, ClientSecurity(tls=True)) is ErrorCode.UNAVAILABLE, "the system's authorities"
    assert refused(server.target, ClientSecurity()) is ErrorCode.UNAVAILABLE, "without TLS"


def served_certificate(server: ServerThread) -> str:
    return ssl.get_server_certificate(("127.0.0.1", server.server.port))


def test_a_certificate_is_swapped_under_load_without_a_failed_call(server: ServerThread, authority: Authority) -> None:
    stop = threading.Event()

    def load() -> int:
        calls = 0
        while not stop.is_set():
            # Each call has a connection of its own, so that it meets the certificate of the moment.
            with TieringClient(server.target, security=trusting(authority)) as client:
                client.list_tiering_statuses()
            calls += 1
        return calls

    with (
        ThreadPoolExecutor(2) as threads,
        TieringClient(server.target, security=trusting(authority)) as long_lived,
    ):
        loads = [threads.submit(load) for _ in range(2)]
        try:
            for number in range(3):
                before = served_certificate(server)
                authority.pair("server", f"server {number}")
                wait_until(lambda before=before: served_certificate(server) != before)
                assert long_lived.list_tiering_statuses() == []
        finally:
            stop.set()
        assert all(each.result() > 0 for each in loads)


def test_a_damaged_certificate_changes_nothing(server: ServerThread, authority: Authority, tmp_path: Path) -> None:
    before = served_certificate(server)
    (tmp_path / "ca" / "server.pem").write_text("-----BEGIN CERTIFICATE-----\nhalf")
    with TieringClient(server.target, security=trusting(authority)) as client:
        assert client.list_tiering_statuses() == []
    assert served_certificate(server) == before
    authority.pair("server", "mended")
    wait_until(lambda: served_certificate(server) != before)


def test_mutual_tls_knows_clients_by_subject_and_by_alternative_name(tmp_path: Path, authority: Authority) -> None:
    access = tmp_path / "access.toml"
    access.write_text(ACCESS)
    settings = settings_of(authority.pair("server", "server"), tls_client_ca_file=authority.cert, access_file=access)
    reader = trusting(authority, authority.pair("reader", "reader"))
    admin = trusting(authority, authority.pair("admin", "someone", uri="spiffe://shop/admin"))
    unknown = trusting(authority, authority.pair("unknown", "unknown"))
    other = Authority(tmp_path / "other", "other")
    foreign_pair = other.pair("reader", "reader")
    foreign = ClientSecurity(
        tls=True, ca=authority.cert.read_bytes(), cert=foreign_pair.cert.read_bytes(), key=foreign_pair.key.read_bytes()
    )
    with ServerThread(tmp_path / "data", **settings) as server:
        with TieringClient(server.target, security=reader) as client:
            assert client.list_tiering_statuses() == []
        assert refused(server.target, reader, lambda client: client.drop_table(NO_TABLE)) is ErrorCode.AUTHORIZATION
        assert refused(server.target, admin, lambda client: client.drop_table(NO_TABLE)) is ErrorCode.TABLE_NOT_EXIST
        assert refused(server.target, unknown) is ErrorCode.AUTHORIZATION
        assert refused(server.target, foreign) is ErrorCode.UNAVAILABLE, "of another authority"
        assert refused(server.target, trusting(authority)) is ErrorCode.UNAVAILABLE, "no certificate"


def test_a_certificate_that_expires_ends_its_streams_and_its_calls(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = tmp_path / "access.toml"
    access.write_text(ACCESS)
    settings = settings_of(authority.pair("server", "server"), tls_client_ca_file=authority.cert, access_file=access)
    reader = trusting(authority, authority.pair("reader", "reader", valid=timedelta(days=9)))

    class TenDaysLater(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override] # no instance of this class
            return datetime.now(tz) + timedelta(days=10)

    with ServerThread(tmp_path / "data", **settings) as server, TieringClient(server.target, security=reader) as client:
        monkeypatch.setattr(lake_tiering, "_SIGN_OF_LIFE_S", 0.1)
        changes = client.watch_tiering_statuses()
        next(changes)
        # The connection is open, and TLS does not look at the certificate again.
        monkeypatch.setattr(certificates, "datetime", TenDaysLater)
        with pytest.raises(FlussTieringError) as ended:
            for _ in changes:
                pass
        assert ended.value.code is ErrorCode.AUTHENTICATION
        with pytest.raises(FlussTieringError, match="the client certificate has expired at 20") as refusal:
            client.list_tiering_statuses()
        assert refusal.value.code is ErrorCode.AUTHENTICATION


def test_files_that_do_not_belong_together_are_refused_at_the_start(tmp_path: Path, authority: Authority) -> None:
    one, two = authority.pair("one", "one"), authority.pair("two", "two")
    for settings, told in [
        (
            {"tls_cert_file": one.cert, "tls_key_file": two.key},
            r"is not the key of the certificate .*\(KEY_VALUES_MISMATCH\)",
        ),
        ({"tls_cert_file": one.cert, "tls_key_file": one.cert}, "holds no PRIVATE KEY in PEM"),
        ({"tls_cert_file": tmp_path / "none.pem", "tls_key_file": one.key}, "none.pem cannot be read"),
        ({**settings_of(one), "tls_client_ca_file": one.key}, "holds no CERTIFICATE in PEM"),
    ]:
        with pytest.raises(FlussTieringError, match=told) as error, ServerThread(tmp_path / "data", **settings):
            pass
        assert error.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com", "10.0.0.1"])
def test_a_server_on_the_network_must_be_guarded_or_told_to_be_open(host: str, tmp_path: Path) -> None:
    with pytest.raises(FlussTieringError, match=r"without TLS .* and without authentication") as error:
        load_settings(host=host, data_dir=tmp_path)
    assert "allow-insecure=true" in error.value.message
    with pytest.raises(FlussTieringError, match="without TLS"):
        load_settings(host=host, data_dir=tmp_path, tokens_file=tmp_path / "tokens")
    with pytest.raises(FlussTieringError, match="without authentication"):
        load_settings(host=host, data_dir=tmp_path, tls_cert_file=tmp_path / "c", tls_key_file=tmp_path / "k")
    assert load_settings(host=host, data_dir=tmp_path, allow_insecure=True).host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.1.2.3"])
def test_a_server_on_loopback_needs_neither(host: str, tmp_path: Path) -> None:
    assert load_settings(host=host, data_dir=tmp_path).host == host
