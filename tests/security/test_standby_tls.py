"""Two servers with mutual TLS: the standby forwards calls, and the active one knows whose they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from certificates import Authority, Pair
from engine_support import ServerProcess, descriptor, new_path
from fluss_tiering.client import TieringClient
from fluss_tiering.client.security import ClientSecurity
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from needs import needs

ACCESS = """
forwarders = ["certificate/CN=server"]

[[grants]]
identity = "certificate/CN=reader"
role = "reader"

[[grants]]
identity = "certificate/CN=admin"
role = "admin"
"""

pytestmark = [pytest.mark.system, pytest.mark.slow]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


@pytest.fixture
@needs("system")
def servers(tmp_path: Path, postgres_url: str, authority: Authority) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    """Yield the active and the standby server."""
    access = tmp_path / "access.toml"
    access.write_text(ACCESS)
    pair = authority.pair("server", "server")
    environment = {
        "FLUSS_TIERING_STORE_URL": postgres_url,
        "FLUSS_TIERING_ACCESS_FILE": str(access),
        "FLUSS_TIERING_TLS_CERT_FILE": str(pair.cert),
        "FLUSS_TIERING_TLS_KEY_FILE": str(pair.key),
        "FLUSS_TIERING_TLS_CLIENT_CA_FILE": str(authority.cert),
        "FLUSS_TIERING_TLS_CA_FILE": str(authority.cert),
    }
    active = ServerProcess(tmp_path / "first", data_dir=tmp_path / "data", **environment).start()
    standby = ServerProcess(tmp_path / "second", data_dir=tmp_path / "data", **environment).start()
    assert "waiting for the active server to end" in standby.log_file.read_text()
    yield active, standby
    for server in (standby, active):
        server.kill()


def security(authority: Authority, pair: Pair) -> ClientSecurity:
    return ClientSecurity(
        tls=True, ca=authority.cert.read_bytes(), cert=pair.cert.read_bytes(), key=pair.key.read_bytes()
    )


def test_calls_through_the_standby_have_the_roles_of_their_clients(
    servers: tuple[ServerProcess, ServerProcess], authority: Authority
) -> None:
    _, standby = servers
    path = new_path()
    with TieringClient(standby.target, security=security(authority, authority.pair("a", "admin"))) as admin:
        assert admin.create_table(path, descriptor()).path == path
    with TieringClient(standby.target, security=security(authority, authority.pair("r", "reader"))) as reader:
        assert [each.path for each in reader.list_tiering_statuses()] == [path]
        with pytest.raises(FlussTieringError) as refused:
            reader.drop_table(path)
        assert refused.value.code is ErrorCode.AUTHORIZATION
    with TieringClient(standby.target, security=security(authority, authority.pair("o", "other"))) as other:
        with pytest.raises(FlussTieringError, match="certificate/CN=other may not call ListTables") as refused:
            other.list_tables()
        assert refused.value.code is ErrorCode.AUTHORIZATION


@pytest.mark.parametrize("through", ["active", "standby"])
@pytest.mark.sampled(1)
def test_nobody_takes_the_name_of_another_client(
    servers: tuple[ServerProcess, ServerProcess], authority: Authority, through: str
) -> None:
    server = dict(zip(("active", "standby"), servers, strict=True))[through]
    pair = authority.pair("r", "reader")
    credentials = grpc.ssl_channel_credentials(
        authority.cert.read_bytes(), pair.key.read_bytes(), pair.cert.read_bytes()
    )
    claimed = [("fluss-tiering-client-name-bin", b"certificate/CN=admin"), ("fluss-tiering-forwarded", "1")]
    for metadata in (claimed, claimed[:1]):
        with grpc.secure_channel(server.target, credentials) as channel:
            drop = channel.unary_unary("/fluss_tiering.v1.Tables/DropTable")
            with pytest.raises(grpc.RpcError) as refused:
                drop(b"", metadata=metadata, timeout=30)
        failed: grpc.Call = refused.value  # type: ignore[assignment]
        assert failed.code() is grpc.StatusCode.PERMISSION_DENIED, failed.details()
