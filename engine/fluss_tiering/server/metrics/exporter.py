"""The HTTP port that Prometheus scrapes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from typing import Final

from prometheus_client import CollectorRegistry, MetricsHandler, ProcessCollector

from fluss_tiering.model.clock import Clock
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.metrics.rpc import RpcMetrics
from fluss_tiering.server.metrics.server import ServerCollector

_POLL_S: Final = 0.05
"""How soon the port notices that it is to be closed."""


class ServerMetrics:
    """All metrics of a server.

    Attributes:
        collector: of what the server holds.
        rpc: of its calls.
    """

    def __init__(self, clock: Clock) -> None:
        self._registry = CollectorRegistry()
        self.collector = ServerCollector(clock)
        self.rpc = RpcMetrics(self._registry)
        self._registry.register(self.collector)
        ProcessCollector(registry=self._registry)

    @contextmanager
    def exported(self, host: str, port: int) -> Iterator[int]:
        """Serves them meanwhile, a scrape in a thread of its own; yields the port.

        Raises:
            FlussTieringError: UNAVAILABLE when it cannot listen.
        """
        try:
            server = _HttpServer((host, port), MetricsHandler.factory(self._registry))
        except (OSError, OverflowError) as error:
            reason = error.strerror if isinstance(error, OSError) else None
            raise FlussTieringError(
                ErrorCode.UNAVAILABLE,
                f"cannot export metrics on {host}:{port}: {reason or error}; another program may have the port, choose "
                "a free one with -D metrics.port=PORT, or export none with -D metrics.enabled=false",
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

    def __init__(self, address: tuple[str, int], handler: type[MetricsHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)
