"""The metrics of gRPC calls: how many there are and how long they take, by method and status."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from fluss_tiering.server.edge.handlers import status_of_call, surrounded
from fluss_tiering.server.edge.interceptor import OwnServicesInterceptor

if TYPE_CHECKING:
    from fluss_tiering.server.edge.handlers import Context, Handler

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class RpcMetrics(OwnServicesInterceptor):
    """Measures the calls of this server's services. It runs outside the interceptor that turns errors into statuses.

    Streams are counted but not timed, because the duration of a stream says nothing about the server's speed.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = Histogram(
            "fluss_tiering_rpc_duration_seconds",
            "How long unary calls took.",
            ("method", "status"),
            buckets=_SECONDS,
            registry=registry,
        )
        self._calls = Counter("fluss_tiering_rpc", "Calls that ended.", ("method", "status"), registry=registry)
        self._in_flight = Gauge("fluss_tiering_rpc_in_flight", "Calls that have not ended.", registry=registry)

    def wrap(self, handler: Handler, method: str) -> Handler:
        """Return a handler whose calls are measured."""
        name = method.rpartition("/")[2]
        timed = not handler.response_streaming
        return surrounded(handler, lambda _, context: self._measured(context, name, timed=timed))

    @asynccontextmanager
    async def _measured(self, context: Context, method: str, *, timed: bool) -> AsyncIterator[None]:
        started = time.perf_counter()
        self._in_flight.inc()
        failed: BaseException | None = None
        try:
            yield
        except BaseException as error:
            failed = error
            raise
        finally:
            self._in_flight.dec()
            status = status_of_call(context, failed)
            self._calls.labels(method, status).inc()
            if timed:
                self._seconds.labels(method, status).observe(time.perf_counter() - started)
