"""Proxies for credentials that a catalog vends: one before a REST catalog, which vends, and one before S3, which looks.

The catalog and the store behind them are real. The store itself takes requests of everybody.
"""

from __future__ import annotations

import http.client
import itertools
import json
import re
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self

from waiting import WAIT_S

_KEY_ID: Final = re.compile(r"Credential=([^/]+)/")
_TABLE: Final = re.compile(r"/v1/namespaces/[^/]+/tables(/[^/]+)?$")
_PER_CONNECTION: Final = frozenset({"connection", "transfer-encoding", "keep-alive", "accept-encoding"})
EXPIRED: Final = (400, "ExpiredToken", "The provided token has expired.")
UNKNOWN: Final = (403, "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records.")
"""What S3 answers: the status, the code and the message."""
_NUMBERS: Final = itertools.count(1)


@dataclass
class Session:
    """Credentials for a limited time.

    Attributes:
        expires_ms: Until when they are said to be valid; None if that is not told.
        ended: Whether the store says that they have expired.
    """

    number: int = field(default_factory=lambda: next(_NUMBERS))
    expires_ms: int | None = None
    ended: bool = False

    @property
    def key_id(self) -> str:
        return f"vended-key-{self.number}"

    @property
    def token(self) -> str:
        return f"planted-vended-token-{self.number}"

    @property
    def properties(self) -> dict[str, str]:
        """What a catalog vends."""
        told = {} if self.expires_ms is None else {"s3.session-token-expires-at-ms": str(self.expires_ms)}
        return {
            "s3.access-key-id": self.key_id,
            "s3.secret-access-key": f"planted-vended-secret-{self.number}",
            "s3.session-token": self.token,
            **told,
        }


@dataclass(frozen=True)
class S3Request:
    """A request that reached the store.

    Attributes:
        client: "driver" for the JVM's library, "executor" for pyarrow's.
        key_id: The access key id; empty without one.
        ended: Whether it was refused.
    """

    client: str
    key_id: str
    method: str
    path: str
    ended: bool


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
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
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
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

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


class S3Gate(Proxy):
    """A store that takes the requests of sessions that have not ended, and writes down who asks.

    Args:
        upstream: The store, which takes every request, as HOST:PORT.
    """

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self.sessions: dict[str, Session] = {}
        self.requests: list[S3Request] = []
        self.refuse_with = UNKNOWN
        self.after: Callable[[S3Request], None] = lambda request: None
        self._lock = threading.Lock()

    def handle(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Any:
        sent = {name.lower(): value for name, value in headers.items()}
        found = _KEY_ID.search(sent.get("authorization", ""))
        key_id = found[1] if found else ""
        session = self.sessions.get(key_id)
        known = session is not None and sent.get("x-amz-security-token") == session.token
        ended = session is None or not known or session.ended
        client = "executor" if "aws-sdk-cpp" in sent.get("user-agent", "").lower() else "driver"
        request = S3Request(client, key_id, method, path.partition("?")[0], ended)
        with self._lock:
            self.requests.append(request)
        if ended:
            answer = _refusal(*(EXPIRED if known else self.refuse_with))
        else:
            # The store behind this one does not look at signatures.
            unsigned = {name: sent[name] for name in sent if name not in ("authorization", "x-amz-security-token")}
            answer = self.forward(method, path, unsigned, body)
        with self._lock:
            self.after(request)
        return answer

    def keys_of(self, client: str) -> set[str]:
        """Return the access key ids with which a client asked."""
        return {each.key_id for each in self.requests if each.client == client}


def _refusal(status: int, code: str, message: str) -> tuple[int, dict[str, str], bytes]:
    text = f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>{message}</Message></Error>'
    return status, {"Content-Type": "application/xml"}, text.encode()


class VendingCatalog(Proxy):
    """A REST catalog that vends credentials with each table that it loads or creates, if it is asked to.

    Args:
        upstream: The catalog, as HOST:PORT.
        vend: Returns what is added to the answer: `config` and `storage-credentials`.
    """

    def __init__(self, upstream: str, vend: Callable[[], Mapping[str, Any]]) -> None:
        super().__init__(upstream)
        self.vend = vend
        self.loads = 0

    def handle(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Any:
        status, told, content = self.forward(method, path, headers, body)
        wanted = {name.lower(): value for name, value in headers.items()}.get("x-iceberg-access-delegation", "")
        if status == http.HTTPStatus.OK and "vended-credentials" in wanted and _TABLE.search(path.partition("?")[0]):
            answer = json.loads(content or "{}")
            if "metadata" in answer and method in ("GET", "POST"):
                self.loads += 1
                vended = self.vend()
                answer["config"] = {**(answer.get("config") or {}), **vended.get("config", {})}
                answer["storage-credentials"] = vended.get("storage-credentials", [])
                content = json.dumps(answer).encode()
        return status, told, content
