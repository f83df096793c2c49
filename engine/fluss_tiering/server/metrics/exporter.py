"""The HTTP port that Prometheus scrapes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

import structlog
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest

from fluss_tiering.model.clock import Clock
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.metrics.rpc import RpcMetrics
from fluss_tiering.server.metrics.server import ServerCollector

logger = structlog.get_logger(__name__)

_POLL_S: Final = 0.05
"""How often the HTTP server looks whether it is to stop, in seconds."""


class ServerMetrics:
    """All metrics of a server.

    Attributes:
        collector: The collector of what the server holds.
        rpc: The metrics of gRPC calls.
    """

    def __init__(self, clock: Clock) -> None:
        self._registry = CollectorRegistry()
        self.collector = ServerCollector(clock)
        self.rpc = RpcMetrics(self._registry)
        self._registry.register(self.collector)
        ProcessCollector(registry=self._registry)

    def text(self) -> bytes:
        """Return the present values of all metrics in Prometheus's text format."""
        return generate_latest(self._registry) + self.collector.tables_text().encode()

    @contextmanager
    def exported(self, host: str, port: int) -> Iterator[int]:
        """Serve the metrics over HTTP until the block ends, and yield the port. Each scrape has a thread of its own.

        Raises:
            FlussTieringError: UNAVAILABLE if the port cannot be opened.
        """
        try:
            server = _HttpServer((host, port), self.text)
        except (OSError, OverflowError) as error:
            reason = error.strerror if isinstance(error, OSError) else None
            raise FlussTieringError(
                ErrorCode.UNAVAILABLE,
                f"cannot export metrics on {host}:{port}: {reason or error}; if another program has the port, choose "
                "a free one with -D metrics-port=PORT, or export no metrics with -D metrics-enabled=false",
            ) from error
        thread = threading.Thread(target=server.serve_forever, args=(_POLL_S,), name="metrics", daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_port = False

    def __init__(self, address: tuple[str, int], text: Callable[[], bytes]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.text = text
        super().__init__(address, _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _HttpServer

    def do_GET(self) -> None:
        """Answer a scrape."""
        if self.path.partition("?")[0] not in ("/", "/metrics"):
            self.send_error(HTTPStatus.NOT_FOUND, "metrics are at /metrics")
            return
        try:
            body = self.server.text()
        except Exception:
            logger.exception("scrape failed")
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR, "the scrape failed: see the server's log")
            return
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", CONTENT_TYPE_LATEST)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Log nothing: scrapes would fill the log."""
