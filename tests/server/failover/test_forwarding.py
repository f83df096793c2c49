"""The connection of a standby server to the active one: its answers, its failures and its certificates."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from certificates import Authority, Pair
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.failover.forwarding import ActiveServer, gave_no_answer, server_credentials
from fluss_tiering.server.settings import load_settings

CODE = ("fluss-error-code", "TABLE_NOT_EXIST")


def error(code: grpc.StatusCode, details: str | None, *trailing: tuple[str, str]) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*trailing), details)


@pytest.mark.parametrize(
    ("failed", "unanswered"),
    [
        (error(grpc.StatusCode.UNAVAILABLE, "failed to connect"), True),
        (error(grpc.StatusCode.UNAVAILABLE, "the server is starting", CODE), False),
        (error(grpc.StatusCode.INTERNAL, "Internal error from Core"), True),
        (error(grpc.StatusCode.INTERNAL, "Internal error from Core", CODE), False),
        (error(grpc.StatusCode.INTERNAL, "the disk is full"), False),
        (error(grpc.StatusCode.NOT_FOUND, "Internal error from Core"), False),
    ],
)
def test_what_has_no_code_of_ours_may_be_no_answer(failed: grpc.aio.AioRpcError, unanswered: bool) -> None:  # S28
    assert gave_no_answer(failed) is unanswered


class Context:
    """A client's call, which the standby server ends."""

    async def abort(self, code: grpc.StatusCode, details: str, trailing: Any) -> None:
        raise KeyError(code, details, dict(trailing))


async def refusal(failed: grpc.aio.AioRpcError, *, closed: bool = False) -> Exception:
    server = ActiveServer("there:7")
    if closed:
        await server.close()
    context: Any = Context()
    with pytest.raises((FlussTieringError, KeyError)) as refused:
        await server.fail(failed, context)
    await server.close()
    return refused.value


async def test_an_answer_is_passed_on_with_what_it_says() -> None:  # S28
    own = ("grpc-status-details-bin", "of the connection")
    passed_on = await refusal(error(grpc.StatusCode.NOT_FOUND, "no such table", CODE, own))
    assert passed_on.args == (grpc.StatusCode.NOT_FOUND, "no such table", dict([CODE]))
    assert (await refusal(error(grpc.StatusCode.INTERNAL, None))).args[1] == ""


@pytest.mark.parametrize(
    ("details", "closed", "reason"),
    [
        ("connection refused", False, "connection refused"),
        (None, False, "no answer"),
        ("connection refused", True, "it is no longer the active server"),
    ],
)
async def test_a_failure_of_the_connection_names_the_server_and_the_reason(
    details: str | None, closed: bool, reason: str
) -> None:  # S28
    refused = await refusal(error(grpc.StatusCode.UNAVAILABLE, details), closed=closed)
    assert isinstance(refused, FlussTieringError)
    assert refused.code is ErrorCode.UNAVAILABLE
    start = "the active server at there:7 cannot be reached from this standby server: "
    assert refused.message.startswith(f"{start}{reason}; ")


# TLS


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


class ClientCall:
    """A client's call at the standby server."""

    def auth_context(self) -> dict[str, Any]:
        return {}

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ()


async def _echo(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
    """Answer with the name in the certificate of the caller, and with the request."""
    (name,) = context.auth_context()["x509_common_name"]
    return bytes(name) + b": " + request


@asynccontextmanager
async def asked_over_tls(authority: Authority, pair: Pair) -> AsyncIterator[str]:
    """Run a server that asks each caller for a certificate of the authority, and yield its address."""
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    running = grpc.aio.server(options=options)
    handler = grpc.method_handlers_generic_handler("test", {"Echo": grpc.unary_unary_rpc_method_handler(_echo)})
    running.add_generic_rpc_handlers((handler,))
    credentials = grpc.ssl_server_credentials(
        [(pair.key.read_bytes(), pair.cert.read_bytes())], authority.cert.read_bytes(), require_client_auth=True
    )
    port = running.add_secure_port("127.0.0.1:0", credentials)
    await running.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await running.stop(0)


async def answer(address: str, credentials: grpc.ChannelCredentials | None, request: bytes = b"?") -> bytes:
    server = ActiveServer(address, credentials)
    context: Any = ClientCall()
    try:
        return b"".join([each async for each in server.call("/test/Echo", request, context, 20)])
    finally:
        await server.close()


async def test_servers_show_each_other_their_certificates(tmp_path: Path, authority: Authority) -> None:
    active, standby = authority.pair("active", "the active one"), authority.pair("standby", "the standby one")
    trusting = load_settings(
        data_dir=tmp_path, tls_cert_file=standby.cert, tls_key_file=standby.key, tls_ca_file=authority.cert
    )
    async with asked_over_tls(authority, active) as address:
        assert await answer(address, server_credentials(trusting)) == b"the standby one: ?"
        # It forwards what it takes from its own clients, which may be more than the 4 MiB that gRPC allows by itself.
        large = b"x" * (5 << 20)
        assert await answer(address, server_credentials(trusting), large) == b"the standby one: " + large


async def test_without_a_file_of_authorities_only_those_of_the_machine_are_trusted(
    tmp_path: Path, authority: Authority
) -> None:
    pair = authority.pair("both", "both")
    settings = load_settings(data_dir=tmp_path, tls_cert_file=pair.cert, tls_key_file=pair.key)
    async with asked_over_tls(authority, pair) as address:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await answer(address, server_credentials(settings))
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


def test_without_certificates_servers_have_no_tls(tmp_path: Path) -> None:
    assert server_credentials(load_settings(data_dir=tmp_path)) is None


@pytest.mark.parametrize("gone", ["tls_cert_file", "tls_key_file", "tls_ca_file"])
def test_a_file_that_is_gone_is_named(tmp_path: Path, authority: Authority, gone: str) -> None:
    pair = authority.pair("server", "a server")
    files = {"tls_cert_file": pair.cert, "tls_key_file": pair.key, "tls_ca_file": authority.cert}
    settings = load_settings(data_dir=tmp_path, **files)
    files[gone].unlink()
    with pytest.raises(FlussTieringError) as refused:
        server_credentials(settings)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert refused.value.message == f"TLS: {files[gone]} cannot be read: No such file or directory"
