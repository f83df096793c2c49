"""A tiering server that answers over TLS only, and only those who bring a token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from certificates import Authority
from engine_support import ServerThread
from fluss_tiering.client import TieringClient
from fluss_tiering.client.security import ClientSecurity
from token_support import add_tokens

ROLES = ("reader", "tierer", "operator", "admin")


class GuardedServer:
    """A server with one token for each role, by the role's name.

    Args:
        folder: The folder of its files.
        settings: Other settings of the server.
    """

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.authority = Authority(folder / "ca")
        pair = self.authority.pair("server", "server")
        file = folder / "tokens.json"
        self.tokens = add_tokens(file, {role: [role] for role in ROLES})
        self.running = ServerThread(
            folder / "server", tls_cert_file=pair.cert, tls_key_file=pair.key, tokens_file=file, **settings
        )

    def client(self, role: str) -> TieringClient:
        """Return a client that does not use Airflow."""
        security = ClientSecurity(token=self.tokens[role], tls=True, ca=self.authority.cert.read_bytes())
        return TieringClient(self.running.target, security=security)

    def connection(self, password: str | None = None, **extra: object) -> str:
        """Return a connection to it in JSON, which trusts its authority unless `extra` says otherwise."""
        return json.dumps(
            {
                "conn_type": "fluss",
                "host": "127.0.0.1",
                "port": self.running.server.port,
                "password": password,
                "extra": {"timeout": 10, "tls_ca": str(self.authority.cert), **extra},
            }
        )
