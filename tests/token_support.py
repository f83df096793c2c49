"""Static tokens of servers that ask who calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import grpc

from engine_support import ServerThread
from fluss_tiering.client import TieringClient
from fluss_tiering.client.security import ClientSecurity
from fluss_tiering.server.edge.callers.roles import Grant
from fluss_tiering.server.edge.callers.tokens import StaticToken, TokenFile


def add_tokens(file: Path, roles_by_name: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Add a token for each name to a file of tokens, and return their texts by the names.

    Args:
        file: The file, which is made if it is not there.
        roles_by_name: Roles as `fluss-tiering token create` takes them: `admin`, or `reader=shop.*` for some tables.
    """
    texts = {}
    for name, roles in roles_by_name.items():
        grants = [Grant.parse(*role.split("=")) for role in roles]
        token, texts[name] = StaticToken.create(name, grants, datetime.now(UTC), None)
        TokenFile(file).add(token)
    return texts


class TokenServer(ServerThread):
    """A server that asks who calls.

    Args:
        folder: The folder of its data and of its tokens.
        roles_by_name: Who has a token, and the roles, as `add_tokens` takes them.
        settings: Other settings.

    Attributes:
        tokens_file: The file of its tokens.
        tokens: The token of each name.
        channel: A channel to the server, while it runs.
    """

    channel: grpc.Channel

    def __init__(self, folder: Path, roles_by_name: Mapping[str, Sequence[str]], **settings: Any) -> None:
        folder.mkdir(exist_ok=True)
        self.tokens_file = folder / "tokens.json"
        self.tokens = add_tokens(self.tokens_file, roles_by_name)
        super().__init__(folder / "data", tokens_file=self.tokens_file, **settings)

    def __enter__(self) -> Self:
        super().__enter__()
        self.channel = grpc.insecure_channel(self.target)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.channel.close()
        super().__exit__(*exc_info)

    def client(self, name: str) -> TieringClient:
        """Return a client with the token of a name."""
        return self.client_with(self.tokens[name])

    def client_with(self, token: str) -> TieringClient:
        """Return a client with any token."""
        return TieringClient(self.target, security=ClientSecurity(token=token))
