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


def require_free(port: int, option: str) -> None:
    """Check that nobody listens on a port of this machine.

    Without the check, a program that cannot listen ends, and another one that answers on its port is taken for it.

    Args:
        port: The port.
        option: The option that names another port, for the message.

    Raises:
        SystemExit: The port is taken.
    """
    with socket.socket() as bound:
        # Connections of a server that has ended may still linger on its port.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind(("127.0.0.1", port))
        except OSError as error:
            raise SystemExit(
                f"error: port {port} of 127.0.0.1 cannot be used ({error.strerror}): expected a free port; end the "
                f"program that listens there, or name another port: ARGS='{option} PORT'"
            ) from error
