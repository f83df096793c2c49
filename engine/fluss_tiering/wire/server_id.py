"""The metadata with which a call names the server that it is for.

The id of a server is that of its storage: the one in its data folder, or the id of its Fluss cluster. Two servers that
stand in for each other have the same id.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

SERVER_ID_METADATA_KEY: Final = "fluss-tiering-server-id"


def named_server_id(metadata: Iterable[tuple[str, str | bytes]] | None) -> str | None:
    """Return the id of the server that a call's metadata names; None if it names none."""
    for key, value in metadata or ():
        if key == SERVER_ID_METADATA_KEY:
            return str(value)
    return None
