"""What a client is told of a connection that fails for its certificates, or for the server's."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from certificates import Authority, Pair
from engine_support import ServerProcess, ServerThread
from fluss_tiering.client import AsyncTieringClient, TieringClient
from fluss_tiering.client.security import ClientSecurity
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from needs import needs

TIMEOUT_S = 20.0
PROGRAM = Path(sys.executable).with_name("fluss-tiering")


class Certificates:
    """An authority, and the certificates that it made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder / "ca")
        self.stranger = Authority(folder / "stranger", "stranger")
        self.server = self.authority.pair("server", "server")
        self.client = self.authority.pair("client", "client")

    def trusting(self, pair: Pair | None = None, *, ca: Path | None = None) -> ClientSecurity:
        named = {"FLUSS_TIERING_TLS_CA": str(ca or self.authority.cert)}
        if pair is not None:
            named |= {"FLUSS_TIERING_TLS_CERT": str(pair.cert), "FLUSS_TIERING_TLS_KEY": str(pair.key)}
        return ClientSecurity.from_environment(named)

    def serve(self, pair: Pair | None = None, **settings: object) -> ServerThread:
        files = {} if pair is None else {"tls_cert_file": pair.cert, "tls_key_file": pair.key}
        return ServerThread(self.folder / "data", **files, **settings)


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


def told(target: str, security: ClientSecurity) -> str:
    """What a call is refused with."""
    with TieringClient(target, security=security, timeout=TIMEOUT_S) as client, pytest.raises(FlussTieringError) as e:
        client.list_tiering_statuses()
    assert e.value.code is ErrorCode.UNAVAILABLE
    return e.value.message


FAILED = "the TLS handshake with the tiering server at {target} failed: its certificate "
CLOSED = "the tiering server at {target} closed the connection at once: perhaps it expects TLS (--tls and --tls-ca, or "
CASES: dict[str, tuple[Callable[[Certificates], ServerThread], Callable[[Certificates], ClientSecurity], str]] = {
    "a certificate for another name": (
        lambda made: made.serve(made.authority.pair("named", "named", host="tiering.example.com")),
        lambda made: made.trusting(),
        FAILED + "is for another name: call the server by a name that is in its certificate",
    ),
    "a certificate that has expired": (
        lambda made: made.serve(made.authority.pair("old", "old", valid=timedelta(seconds=-1))),
        lambda made: made.trusting(),
        FAILED + "or that of its authority has expired: renew it",
    ),
    "another authority": (
        lambda made: made.serve(made.server),
        lambda made: made.trusting(ca=made.stranger.cert),
        FAILED + "is not of an authority that this client trusts: name its authority with --tls-ca",
    ),
    "the authorities of the system": (
        lambda made: made.serve(made.server),
        lambda made: ClientSecurity(tls=True),
        FAILED + "is not of an authority that this client trusts: name its authority with --tls-ca",
    ),
    "a server without TLS": (
        lambda made: made.serve(),
        lambda made: made.trusting(),
        "the TLS handshake with the tiering server at {target} failed: it does not use TLS: start it",
    ),
    "a client without TLS": (lambda made: made.serve(made.server), lambda made: ClientSecurity(), CLOSED),
    "no client certificate": (
        lambda made: made.serve(made.server, tls_client_ca_file=made.authority.cert),
        lambda made: made.trusting(),
        CLOSED,
    ),
    "a client certificate of another authority": (
        lambda made: made.serve(made.server, tls_client_ca_file=made.stranger.cert),
        lambda made: made.trusting(made.client),
        CLOSED,
    ),
}


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
async def test_the_cause_is_told_with_what_to_do(name: str, certificates: Certificates) -> None:
    serve, security, expected = CASES[name]
    with serve(certificates) as server:
        message = told(server.target, security(certificates))
        assert message.startswith(expected.format(target=server.target)), message
        assert "fluss-tiering serve" not in message
        assert ": OK" not in message
        async with AsyncTieringClient(server.target, security=security(certificates), timeout=TIMEOUT_S) as client:
            with pytest.raises(FlussTieringError) as failed:
                await client.list_tiering_statuses()
        assert failed.value.message == message


@pytest.mark.parametrize(
    ("ca", "cert", "key", "expected"),
    [
        ("server.key", None, None, "CA: {folder}/server.key holds no certificate that can be read"),
        ("half.pem", None, None, "CA: {folder}/half.pem holds no certificate that can be read"),
        (None, "client.pem", "server.key", "KEY: {folder}/server.key is not the key of the cert"),
        (None, "client.key", "client.key", "KEY: {folder}/client.key is not the key of the certificate in"),
        (None, "half.pem", "client.key", "KEY: {folder}/client.key is not the key of the certificate in"),
        (None, "client.pem", "half.pem", "KEY: {folder}/half.pem is not the key of the certificate in"),
        (None, "client.pem", "client.pem", "KEY: {folder}/client.pem is not the key of the certificate in"),
        (None, "client.pem", "locked.key", "KEY: {folder}/locked.key is not the key of the certificate in"),
    ],
)
def test_a_wrong_file_is_named_before_a_call(
    ca: str | None, cert: str | None, key: str | None, expected: str, certificates: Certificates
) -> None:
    folder = certificates.authority.cert.parent
    (folder / "half.pem").write_text("-----BEGIN CERTIFICATE-----\nhalf\n-----END CERTIFICATE-----\n")
    certificates.authority.encrypt_key(certificates.client.key, folder / "locked.key", b"secret")
    names = {"FLUSS_TIERING_TLS_CA": ca, "FLUSS_TIERING_TLS_CERT": cert, "FLUSS_TIERING_TLS_KEY": key}
    with pytest.raises(FlussTieringError) as refused:
        ClientSecurity.from_environment({name: str(folder / file) for name, file in names.items() if file})
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    name, told = expected.format(folder=folder).split(": ", 1)
    shown = f"FLUSS_TIERING_TLS_{name} (--tls-{name.lower()}): {told}"
    assert refused.value.message.startswith(shown), refused.value.message


def test_a_bundle_of_authorities_may_have_comments_in_any_language(certificates: Certificates) -> None:
    bundle = certificates.folder / "bundle.pem"
    pem = certificates.authority.cert.read_bytes() + certificates.stranger.cert.read_bytes()
    for comment in ("# Főtanúsítvány\n".encode(), "# Zertifizierungsstelle für Köln\n".encode("latin-1")):
        bundle.write_bytes(comment + pem)
        assert certificates.trusting(ca=bundle).ca == comment + pem


@pytest.fixture
@needs("system", "server")
def process(certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerProcess]:
    """A server with TLS as a program of its own. Programs start without the variable that this process has."""
    monkeypatch.delenv("GRPC_VERBOSITY", raising=False)
    files = {
        "FLUSS_TIERING_TLS_CERT_FILE": str(certificates.server.cert),
        "FLUSS_TIERING_TLS_KEY_FILE": str(certificates.server.key),
    }
    running = ServerProcess(tmp_path / "process", **files)
    yield running.start()
    running.stop()


def test_grpc_writes_no_lines_of_its_own(process: ServerProcess, certificates: Certificates) -> None:
    def status(*options: str) -> str:
        asked = [PROGRAM, *options, "status", "--server", process.target]
        answer = subprocess.run(asked, capture_output=True, text=True, check=False)
        assert answer.returncode == 2, answer
        return answer.stderr

    other = status("--tls-ca", str(certificates.stranger.cert))
    assert other.startswith("error: the TLS handshake with the tiering server")
    plain = status()
    assert plain.startswith("error: the tiering server at ")
    assert len((other + plain).splitlines()) == 2
    assert {line.partition("=")[0] for line in process.log_file.read_text().splitlines()} == {"timestamp"}


def test_grpc_writes_its_lines_for_those_who_ask(
    process: ServerProcess, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRPC_VERBOSITY", "INFO")
    asked = [PROGRAM, "--tls-ca", certificates.stranger.cert, "status", "--server", process.target]
    answer = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert "ssl_transport_security" in answer.stderr
