"""The sockets of connections to PostgreSQL, which another thread may break to end a wait without an answer."""

from __future__ import annotations

import os
import socket
import weakref
from contextlib import suppress
from typing import Any


class Sockets:
    """The sockets of a database's open connections. Any thread may use it.

    Attributes:
        ended: Whether no connection may be opened any more.
    """

    def __init__(self) -> None:
        self.ended = False
        self._connections: weakref.WeakSet[Any] = weakref.WeakSet()

    def add(self, connection: Any) -> None:  # noqa: ANN401 - a driver's connection
        """Note a connection of the driver psycopg. Closed ones are forgotten by themselves."""
        self._connections.add(connection)

    def end(self) -> None:
        """Break all connections for good."""
        self.ended = True
        self.break_all()

    def break_all(self) -> None:
        """Break all connections. A thread that waits for an answer gets an error, as if the network had failed."""
        for connection in list(self._connections):
            # The driver raises an error for a connection that was closed, and the system for its socket.
            with suppress(Exception):
                if not connection.closed:
                    # The copy is closed here. The driver keeps its own and finds that it can no longer be read.
                    with socket.socket(fileno=os.dup(connection.fileno())) as copy:
                        copy.shutdown(socket.SHUT_RDWR)
