"""A proxy in front of an S3 server that refuses requests for a while, as S3 does with a client that sends too many."""

from __future__ import annotations

import http.client
import random
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, Self

_SLOW_DOWN: Final = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>SlowDown</Code>'
    b"<Message>Please reduce your request rate.</Message></Error>"
)
_HOP: Final = {"connection", "transfer-encoding", "keep-alive"}


class ThrottlingProxy:
    """The running proxy, as a context manager.

    Args:
        port: The port of the S3 server on this machine.

    Attributes:
        share: The share of requests that are refused, of 1.
        refused: How many were refused.
    """

    def __init__(self, port: int) -> None:
        self.share = 0.0
        self.refused = 0
        self._chance = random.Random()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _pass(self) -> None:
                proxy._answer(self, port)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the base class
                """Say nothing."""

        for method in ("GET", "HEAD", "PUT", "POST", "DELETE"):
            setattr(Handler, f"do_{method}", Handler._pass)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, request: BaseHTTPRequestHandler, port: int) -> None:
        body = _body_of(request)
        if self._chance.random() < self.share:
            self.refused += 1
            _send(request, 503, {"Content-Type": "application/xml"}, _SLOW_DOWN)
            return
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        try:
            # The signature is of what the client has sent, also of the host that it has named.
            headers = {name: text for name, text in request.headers.items() if name.lower() not in _HOP}
            if "Transfer-Encoding" in request.headers:
                headers["Content-Length"] = str(len(body))
            connection.request(request.command, request.path, body or None, headers)
            answer = connection.getresponse()
            _send(request, answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()


def _body_of(request: BaseHTTPRequestHandler) -> bytes:
    if "chunked" not in request.headers.get("Transfer-Encoding", ""):
        return request.rfile.read(int(request.headers.get("Content-Length", 0)))
    parts = []
    while size := int(request.rfile.readline().split(b";")[0], 16):
        parts.append(request.rfile.read(size))
        request.rfile.readline()
    request.rfile.readline()
    return b"".join(parts)


def _send(request: BaseHTTPRequestHandler, status: int, headers: dict[str, str], body: bytes) -> None:
    request.send_response_only(status)
    is_head = request.command == "HEAD"
    for name, text in headers.items():
        if name.lower() not in _HOP and (is_head or name.lower() != "content-length"):
            request.send_header(name, text)
    if not is_head:
        request.send_header("Content-Length", str(len(body)))
    elif status == 503:
        request.send_header("Content-Length", "0")
    request.end_headers()
    if not is_head:
        request.wfile.write(body)
