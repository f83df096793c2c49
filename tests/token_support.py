"""Static tokens of servers that ask who calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

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
