"""A tiering server that answers over TLS only, and only those who bring a token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from certificates import Authority
from fluss_tiering.client import TieringClient
from fluss_tiering.client.security import ClientSecurity
from token_support import TokenServer

ROLES = ("reader", "tierer", "operator", "admin")


class GuardedServer(TokenServer):
    """A server with one token for each role, by the role's name.

    Args:
        folder: The folder of its files.
        settings: Other settings of the server.
    """

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.authority = Authority(folder / "ca")
        pair = self.authority.pair("server", "server")
        roles = {role: [role] for role in ROLES}
        super().__init__(folder, roles, tls_cert_file=pair.cert, tls_key_file=pair.key, **settings)

    def client_with(self, token: str) -> TieringClient:
        """Return a client that does not use Airflow."""
        security = ClientSecurity(token=token, tls=True, ca=self.authority.cert.read_bytes())
        return TieringClient(self.target, security=security)

    def connection(self, password: str | None = None, **extra: object) -> str:
        """Return a connection to it in JSON, which trusts its authority unless `extra` says otherwise."""
        return json.dumps(
            {
                "conn_type": "fluss",
                "host": "127.0.0.1",
                "port": self.server.port,
                "password": password,
                "extra": {"timeout": 10, "tls_ca": str(self.authority.cert), **extra},
            }
        )
