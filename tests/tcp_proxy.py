"""A TCP proxy whose network a test can cut: connections then hang without an error, as behind a lost switch."""

from __future__ import annotations

import select
import socket
import threading
from contextlib import suppress
from typing import Self

_POLL_S = 0.02
_CHUNK = 1 << 16


class TcpProxy:
    """Passes connections to its own port on to a target.

    Args:
        target: The target's port on this machine, or the path of its Unix socket.
        port: Its own port; 0 for a free one.
    """

    def __init__(self, target: int | str, port: int = 0) -> None:
        self.target = target
        self._cut = False
        self._closed = False
        self._lost: set[socket.socket] = set()
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", port), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self.accepted = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def cut(self) -> None:
        """Pass nothing on. Connections stay open, and new ones are accepted, but nobody answers."""
        self._cut = True

    def mend(self) -> None:
        """Pass everything on again, also what was sent meanwhile."""
        self._cut = False

    def lose_connections(self) -> None:
        """Pass nothing on over the present connections ever again, without closing them. New ones work."""
        with self._lock:
            self._lost |= self._open

    def drop_connections(self) -> None:
        """Close the present connections."""
        with self._lock:
            for each in self._open:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._closed = True
        self._listener.close()
        self.drop_connections()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            threading.Thread(target=self._pass, args=(client,), daemon=True).start()

    def _pass(self, client: socket.socket) -> None:
        with self._lock:
            self._open.add(client)
        server: socket.socket | None = None
        try:
            while self._stuck(client):
                if self._closed:
                    return
                threading.Event().wait(_POLL_S)
            server = self._connect()
            self._pump(client, server)
        except OSError:
            """One of the two sides closed its connection."""
        finally:
            with self._lock:
                self._open.discard(client)
                self._lost.discard(client)
            client.close()
            if server is not None:
                server.close()

    def _pump(self, client: socket.socket, server: socket.socket) -> None:
        other = {client: server, server: client}
        while not self._closed:
            if self._stuck(client):
                threading.Event().wait(_POLL_S)
                continue
            ready, _, _ = select.select(list(other), [], [], _POLL_S)
            for each in ready:
                if self._stuck(client):
                    break
                data = each.recv(_CHUNK)
                if not data:
                    return
                other[each].sendall(data)

    def _stuck(self, client: socket.socket) -> bool:
        return self._cut or client in self._lost

    def _connect(self) -> socket.socket:
        if isinstance(self.target, int):
            return socket.create_connection(("127.0.0.1", self.target))
        server = socket.socket(socket.AF_UNIX)
        server.connect(self.target)
        return server
