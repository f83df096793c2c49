"""The file for nginx in the documentation: calls, rows and streams pass, and floods end at the proxy."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from callers import call

from certificates import Authority
from engine_support import ServerThread, new_table
from examples.ports import free_ports
from fluss_tiering.client import TieringClient
from fluss_tiering.client.security import ClientSecurity
from token_support import add_tokens
from waiting import wait_until

CONF = Path(__file__).parents[2] / "docs" / "deploy" / "nginx.conf"
LIST = "/fluss_tiering.v1.LakeTiering/ListTieringStatuses"
NGINX = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")

pytestmark = [pytest.mark.system, pytest.mark.skipif(NGINX is None, reason="there is no nginx on this machine")]


@contextmanager
def proxy(folder: Path, server: ServerThread, authority: Authority, **changes: str) -> Iterator[str]:
    """Run nginx with the file of the documentation, and with other paths, ports and what else is changed."""
    (port,) = free_ports(1)
    pair = authority.pair("proxy", "proxy")
    text = CONF.read_text()
    for old, new in {
        "/run/fluss-tiering-nginx.pid": str(folder / "nginx.pid"),
        "/var/log/nginx/fluss-tiering.log": str(folder / "error.log"),
        "127.0.0.1:9133": server.target,
        "listen 9143": f"listen 127.0.0.1:{port}",
        "listen [::]:9143": f"listen [::1]:{port}",
        "/etc/fluss-tiering/tls/server.pem": str(pair.cert),
        "/etc/fluss-tiering/tls/server.key": str(pair.key),
        **changes,
    }.items():
        assert old in text
        text = text.replace(old, new)
    conf = folder / "nginx.conf"
    conf.write_text(text)
    assert NGINX is not None
    running = subprocess.Popen([NGINX, "-c", str(conf), "-g", "daemon off;", "-p", str(folder)])
    try:
        wait_until((folder / "nginx.pid").exists)
        yield f"127.0.0.1:{port}"
    finally:
        running.terminate()
        running.wait(30)


def test_calls_pass_through_nginx_and_floods_do_not(tmp_path: Path) -> None:
    file, authority = tmp_path / "tokens.json", Authority(tmp_path / "authority")
    secret = add_tokens(file, {"anna": ["admin"]})["anna"]
    ca = authority.cert.read_bytes()
    security = ClientSecurity(token=secret, tls=True, ca=ca)
    few = {"rate=300r/s": "rate=1r/s", "burst=600": "burst=5"}
    with ServerThread(tmp_path / "data", tokens_file=file) as server:
        with proxy(tmp_path, server, authority) as target, TieringClient(target, security=security) as client:
            table = new_table(client, range(1000))
            assert next(iter(client.watch_tiering_statuses([table.path]))).statuses[0].path == table.path
        credentials = grpc.ssl_channel_credentials(ca)
        with (
            proxy(tmp_path, server, authority, **few) as target,
            grpc.secure_channel(target, credentials, [("grpc.enable_retries", 0)]) as channel,
        ):
            answers: list[tuple[grpc.StatusCode, Any]] = [call(channel, LIST, secret) for _ in range(20)]
            assert {code for code, _ in answers} == {grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED}
            assert any(re.search("too many calls", details or "") for _, details in answers)
            # A client waits and calls again.
            with TieringClient(target, security=security) as client:
                assert [each.path for each in client.list_tables()] == [table.path]
