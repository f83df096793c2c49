"""Names of each kind in a certificate are apart: nobody takes another's subject by an alternative name."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from itertools import starmap
from pathlib import Path

import grpc
import pytest
from callers import call
from cryptography import x509
from cryptography.x509.oid import NameOID

from cases import cases
from certificates import Authority, Pair
from engine_support import ServerThread
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.server.edge.callers.access_file import read_access
from waiting import wait_until

HEARTBEAT = "/fluss_tiering.v1.LakeTiering/LakeTieringHeartbeat"
DROP = "/fluss_tiering.v1.Tables/DropTable"
ACCESS = """

[[grants]]
identity = "certificate/CN=airflow"
role = "tierer"

[[grants]]
identity = "certificate-uri/spiffe://shop/admin"
role = "admin"

[[grants]]
identity = "certificate-dns/driver.example.com"
role = "tierer"

[[grants]]
identity = "certificate-email/anna@example.com"
role = "tierer"
"""
URI, DNS, EMAIL = x509.UniformResourceIdentifier, x509.DNSName, x509.RFC822Name


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("server")


@pytest.fixture(scope="module")
def server(folder: Path, authority: Authority) -> Iterator[ServerThread]:
    (folder / "access.toml").write_text(ACCESS)
    pair = authority.pair("server", "server")
    with ServerThread(
        folder / "data",
        tls_cert_file=pair.cert,
        tls_key_file=pair.key,
        tls_client_ca_file=authority.cert,
        access_file=folder / "access.toml",
        audit_log=str(folder / "audit.jsonl"),
        metrics_port=0,
    ) as running:
        yield running


def told(
    server: ServerThread, authority: Authority, pair: Pair, path: str = HEARTBEAT, **metadata: str | bytes
) -> tuple[grpc.StatusCode, str]:
    credentials = grpc.ssl_channel_credentials(
        authority.cert.read_bytes(), pair.key.read_bytes(), pair.cert.read_bytes()
    )
    with grpc.secure_channel(server.target, credentials) as channel:
        return call(channel, path, **metadata)


OK, REFUSED = grpc.StatusCode.OK, grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.parametrize("name", [URI("CN=airflow"), DNS("CN=airflow"), EMAIL("CN=airflow")], ids=repr)
def test_an_alternative_name_is_no_subject(server: ServerThread, authority: Authority, name: x509.GeneralName) -> None:
    assert told(server, authority, authority.pair("a", "airflow"))[0] is OK
    status, text = told(server, authority, authority.pair("n", "nobody", others=[name]))
    assert (status, text.partition(" may")[0]) == (REFUSED, "certificate/CN=nobody")


@cases(
    ("name", "status"),
    [
        (URI("spiffe://shop/admin"), OK),
        (DNS("driver.example.com"), OK),
        (EMAIL("anna@example.com"), OK),
        (DNS("spiffe://shop/admin"), REFUSED),
        (URI("driver.example.com"), REFUSED),
        (DNS("anna@example.com"), REFUSED),
    ],
)
def test_alternative_names_of_each_kind_are_apart(
    server: ServerThread, authority: Authority, name: x509.GeneralName, status: grpc.StatusCode
) -> None:
    assert told(server, authority, authority.pair("n", "nobody", others=[name]))[0] is status


SUBJECTS = {
    "one part": [[(NameOID.COMMON_NAME, "someone")]],
    "several parts": [
        [(NameOID.ORGANIZATION_NAME, "Shop")],
        [(NameOID.ORGANIZATIONAL_UNIT_NAME, "Data")],
        [(NameOID.COMMON_NAME, "someone")],
    ],
    "two names in one part": [[(NameOID.COMMON_NAME, "a"), (NameOID.USER_ID, "b")], [(NameOID.COMMON_NAME, "c")]],
    "signs": [[(NameOID.ORGANIZATION_NAME, ' #a,b+c"d\\e<f>;=g ')], [(NameOID.COMMON_NAME, "Größe 表")]],
    "a mail address": [[(NameOID.EMAIL_ADDRESS, "anna@example.com")], [(NameOID.SERIAL_NUMBER, "4711")]],
}


@pytest.mark.slow
@pytest.mark.parametrize("parts", SUBJECTS.values(), ids=SUBJECTS)
def test_a_certificate_without_an_entry_hears_the_name_to_write(
    server: ServerThread,
    authority: Authority,
    folder: Path,
    parts: list[list[tuple[x509.ObjectIdentifier, str]]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = x509.Name([x509.RelativeDistinguishedName(starmap(x509.NameAttribute, each)) for each in parts])
    pair = authority.pair("n", name)
    access, audit = folder / "access.toml", folder / "audit.jsonl"
    status, text = told(server, authority, pair)
    assert status is REFUSED
    assert "an entry with exactly this identity in the access file" in text
    identity = text.partition(" may not call LakeTieringHeartbeat")[0]
    assert identity.startswith("certificate/")
    # The line may not be there yet, or not whole.
    wait_until(lambda: any(json.loads(line)["identity"] == identity for line in audit.read_text().split("\n")[-2:-1]))
    try:
        access.write_text(f"{ACCESS}\n[[grants]]\nidentity = {json.dumps(identity)}\nrole = 'tierer'\n")
        # Of more refused calls than one in a second, not each has a line of its own in the log.
        wait_until(lambda: told(server, authority, pair)[0] is OK, every=1)
        logged = capsys.readouterr().out.replace("\\\\", "\\")
        assert f"{identity} may not call LakeTieringHeartbeat" in logged
    finally:
        access.write_text(ACCESS)


def test_a_subject_is_written_in_the_order_of_rfc_4514(server: ServerThread, authority: Authority) -> None:
    parts = SUBJECTS["several parts"]
    name = x509.Name([x509.NameAttribute(*each) for (each,) in parts])
    assert told(server, authority, authority.pair("n", name))[1].startswith("certificate/CN=someone,OU=Data,O=Shop may")


def test_the_metrics_port_writes_names_as_the_grpc_port_does(server: ServerThread, authority: Authority) -> None:
    context = ssl.create_default_context(cafile=str(authority.cert))
    address = f"https://127.0.0.1:{server.server.metrics_port}/metrics"
    with pytest.raises(OSError):
        urllib.request.urlopen(address, context=context, timeout=30)
    pair = authority.pair("n", "nobody", others=[URI("spiffe://shop/other")])
    context.load_cert_chain(pair.cert, pair.key)
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(address, context=context, timeout=30)
    assert refused.value.read().startswith(b"certificate/CN=nobody may not read metrics")
    admin = authority.pair("m", "nobody", others=[URI("spiffe://shop/admin")])
    context.load_cert_chain(admin.cert, admin.key)
    assert urllib.request.urlopen(address, context=context, timeout=30).status == 200


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        ('[[grants]]\nidentity = "oidc/a"\nrole = "admin"\ntabels = ["a.*"]', "it has identity, role, tabels"),
        ('[[grants]]\nidentity = "oidc/a"', "it has identity"),
        ('grants = ["admin"]', "it is 'admin'"),
    ],
)
def test_an_entry_with_other_keys_is_told_with_what_it_has(entry: str, found: str, tmp_path: Path) -> None:
    (tmp_path / "access.toml").write_text(entry)
    with pytest.raises(FlussTieringError, match=f"{found}: expected identity, role and perhaps tables"):
        read_access(tmp_path / "access.toml")


def test_a_name_that_is_no_subject_is_refused(tmp_path: Path) -> None:
    (tmp_path / "access.toml").write_text("[[grants]]\nidentity = 'certificate/spiffe://shop/admin'\nrole='admin'")
    with pytest.raises(FlussTieringError, match=r"is no subject: .* alternative names begin with certificate-uri/"):
        read_access(tmp_path / "access.toml")
