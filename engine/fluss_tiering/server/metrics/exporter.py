"""The HTTP port that Prometheus scrapes."""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, cast

import structlog
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, ProcessCollector, generate_latest

from fluss_tiering.model.clock import Clock
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.edge.callers.authentication import Authenticated, Authentication, CallCredentials
from fluss_tiering.server.edge.callers.certificate_names import context_of_peer
from fluss_tiering.server.edge.callers.roles import Role
from fluss_tiering.server.edge.tls import ServerTls
from fluss_tiering.server.metrics.rpc import RpcMetrics
from fluss_tiering.server.metrics.server import ServerCollector

logger = structlog.get_logger(__name__)

_CLIENT_S: Final = 30.0
"""How long a client may keep the server waiting, in seconds."""

_POLL_S: Final = 0.05
"""How often the HTTP server looks whether it is to stop, in seconds."""


class ServerMetrics:
    """All metrics of a server.

    Attributes:
        collector: The collector of what the server holds.
        rpc: The metrics of gRPC calls.
        audit_lines_lost: Counts the lines of the audit log that could not be written.
    """

    def __init__(self, clock: Clock) -> None:
        self._registry = CollectorRegistry()
        self.collector = ServerCollector(clock)
        self.rpc = RpcMetrics(self._registry)
        self.audit_lines_lost = Counter(
            "fluss_tiering_audit_lines_lost",
            "Lines of the audit log that could not be written.",
            registry=self._registry,
        )
        self._registry.register(self.collector)
        ProcessCollector(registry=self._registry)

    def text(self) -> bytes:
        """Return the present values of all metrics in Prometheus's text format."""
        return generate_latest(self._registry) + self.collector.tables_text().encode()

    @contextmanager
    def exported(self, host: str, port: int, *, authentication: Authentication, tls: ServerTls | None) -> Iterator[int]:
        """Serve the metrics over HTTP until the block ends, and yield the port. Each scrape has a thread of its own.

        It is called on the event loop, on which those who scrape are authenticated too.

        Args:
            host: The address to listen on.
            port: The port; 0 for any.
            authentication: Finds out who scrapes. It takes the role of a reader of all tables, since metrics name them.
            tls: The server's certificates; None to serve without TLS.

        Raises:
            FlussTieringError: UNAVAILABLE if the port cannot be opened.
        """
        try:
            server = _HttpServer((host, port), _Scrapes(self.text, authentication, asyncio.get_running_loop(), tls))
        except (OSError, OverflowError) as error:
            reason = error.strerror if isinstance(error, OSError) else None
            raise FlussTieringError(
                ErrorCode.UNAVAILABLE,
                f"cannot export metrics on {host}:{port}: {reason or error}; if another server or program has the "
                "port, stop it, choose a free port with -D metrics-port=PORT, or export no metrics with "
                "-D metrics-enabled=false",
            ) from error
        thread = threading.Thread(target=server.serve_forever, args=(_POLL_S,), name="metrics", daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


@dataclass(frozen=True, slots=True)
class _Scrapes:
    """What a scrape needs: the metrics, who may read them, asked on the event loop, and the certificates."""

    text: Callable[[], bytes]
    authentication: Authentication
    loop: asyncio.AbstractEventLoop
    tls: ServerTls | None

    def authenticate(self, credentials: CallCredentials) -> Authenticated:
        """Return who scrapes. Raises the errors of `Authentication.authenticate`."""
        found = asyncio.run_coroutine_threadsafe(self.authentication.authenticate(credentials), self.loop)
        return found.result(_CLIENT_S)


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_port = False

    def __init__(self, address: tuple[str, int], scrapes: _Scrapes) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.scrapes = scrapes
        super().__init__(address, _Handler)

    def finish_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        """Answer a connection in its own thread, where a client that is slow with TLS holds nobody up."""
        connection = cast("socket.socket", request)
        connection.settimeout(_CLIENT_S)
        if self.scrapes.tls is None:
            super().finish_request(connection, client_address)
            return
        try:
            secured = self.scrapes.tls.context().wrap_socket(connection, server_side=True)
        except OSError as error:
            logger.info("scrape refused", error=str(error))
            return
        try:
            super().finish_request(secured, client_address)
        finally:
            secured.close()

    def handle_error(self, request: object, client_address: object) -> None:
        """Log that a scrape broke off, without a traceback."""
        del request
        logger.info("scrape broke off", client=str(client_address), error=str(sys.exception()))


class _Handler(BaseHTTPRequestHandler):
    server: _HttpServer

    def do_GET(self) -> None:
        """Answer a scrape."""
        if self.path.partition("?")[0] not in ("/", "/metrics"):
            self.send_error(HTTPStatus.NOT_FOUND, "metrics are at /metrics")
            return
        if not self._is_admitted():
            return
        try:
            body = self.server.scrapes.text()
        except Exception:
            logger.exception("scrape failed")
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR, "the scrape failed: see the server's log")
            return
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", CONTENT_TYPE_LATEST)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _is_admitted(self) -> bool:
        if not self.server.scrapes.authentication.asks:
            return True
        metadata = [(key.lower(), value) for key, value in self.headers.items()]
        certificate = context_of_peer(self.connection) if isinstance(self.connection, ssl.SSLSocket) else {}
        try:
            found = self.server.scrapes.authenticate(CallCredentials.of(metadata, certificate))
        except FlussTieringError as error:
            if error.code is ErrorCode.AUTHENTICATION:
                self.send_response(HTTPStatus.UNAUTHORIZED)
                self.send_header("WWW-Authenticate", "Bearer")
            else:
                self.send_response(HTTPStatus.SERVICE_UNAVAILABLE)
            self._end_with(error.message)
            return False
        if not found.identity.has_for_all(Role.READER):
            self.send_response(HTTPStatus.FORBIDDEN)
            self._end_with(f"{found.identity.name} may not read metrics: it takes the role reader for all tables")
            return False
        return True

    def _end_with(self, text: str) -> None:
        body = f"{text}\n".encode()
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Log nothing: scrapes would fill the log."""
