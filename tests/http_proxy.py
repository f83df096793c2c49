"""A proxy before an HTTP server, of which tests make their own."""

from __future__ import annotations

import http.client
import socket
import struct
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self

from waiting import WAIT_S

_PER_CONNECTION: Final = frozenset({"connection", "transfer-encoding", "keep-alive", "accept-encoding"})


@dataclass
class CutOff(Exception):  # noqa: N818
    """Ends the connection instead of an answer, of which only the beginning may be sent."""

    sent: bytes = b""


class Proxy:
    """An HTTP proxy before a server; `with` starts and ends it."""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = _body_of(self)
                try:
                    status, headers, content = proxy.handle(self.command, self.path, dict(self.headers), body)
                except CutOff as cut:
                    self.wfile.write(cut.sent)
                    self.close_connection = True
                    # The client hears of a reset.
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    return
                self.send_response(status)
                for name, value in headers.items():
                    if name.lower() not in _PER_CONNECTION | {"content-length"}:
                        self.send_header(name, value)
                length = headers.get("Content-Length") if self.command == "HEAD" else None
                self.send_header("Content-Length", length or str(len(content)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer  # noqa: N815 - the names of http.server

            def log_message(self, *_: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=[0.05], daemon=True)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._server.shutdown()
        self._thread.join(WAIT_S)
        self._server.server_close()

    def handle(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Any:
        """Return the status, the headers and the body of an answer."""
        return self.forward(method, path, headers, body)

    def forward(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        """Ask the server behind this one."""
        connection = http.client.HTTPConnection(self._upstream, timeout=WAIT_S)
        try:
            kept = {name: value for name, value in headers.items() if name.lower() not in _PER_CONNECTION}
            connection.request(method, path, body, kept)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()


def _body_of(request: BaseHTTPRequestHandler) -> bytes:
    if "chunked" not in request.headers.get("Transfer-Encoding", ""):
        return request.rfile.read(int(request.headers.get("Content-Length") or 0))
    parts = []
    while size := int(request.rfile.readline().split(b";")[0], 16):
        parts.append(request.rfile.read(size))
        request.rfile.readline()
    request.rfile.readline()
    return b"".join(parts)


def s3_refusal(status: int, code: str, message: str) -> tuple[int, dict[str, str], bytes]:
    """Return the answer with which S3 refuses a request."""
    text = f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>{message}</Message></Error>'
    return status, {"Content-Type": "application/xml"}, text.encode()
