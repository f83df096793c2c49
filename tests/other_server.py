"""A server that does not speak gRPC."""

from __future__ import annotations

import socketserver
import threading
from typing import Self


class OtherServer(socketserver.ThreadingTCPServer):
    """A server of another kind; `with` starts and ends it.

    Args:
        answer: What it answers to the first bytes of a connection; None if it never answers.

    Attributes:
        received: The first bytes of each connection.
    """

    daemon_threads = True

    def __init__(self, answer: bytes | None) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.answer = answer
        self.received: list[bytes] = []

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=[0.05], daemon=True).start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.shutdown()
        self.server_close()


class _Connection(socketserver.BaseRequestHandler):
    server: OtherServer

    def handle(self) -> None:
        self.server.received.append(self.request.recv(4096))
        if self.server.answer is not None:
            self.request.sendall(self.server.answer)
            return
        while self.request.recv(4096):
            """The client waits."""
