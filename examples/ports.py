"""Ports for servers that are started on this machine."""

from __future__ import annotations

import contextlib
import random
import socket
from typing import Final

# Below the ports that systems give to whoever asks for any: a server that starts again finds its own still free.
_FIRST: Final = 15_000
_LAST: Final = 30_000


def free_ports(count: int) -> list[int]:
    """Return different ports that nobody listened on a moment ago."""
    ports: set[int] = set()
    while len(ports) < count:
        port = random.randrange(_FIRST, _LAST)
        with contextlib.suppress(OSError), socket.socket() as bound:
            bound.bind(("127.0.0.1", port))
            ports.add(port)
    return list(ports)
