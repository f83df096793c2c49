"""The tiering server as a whole: starts and stops its parts in order, and runs until it is told to stop."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack
from typing import Final

import grpc
import grpc.aio
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from fluss_tiering.model.clock import Clock, SystemClock
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.active import open_parts, start_jobs
from fluss_tiering.server.logs import configure_logs
from fluss_tiering.server.metrics.exporter import ServerMetrics
from fluss_tiering.server.servicers.interceptor import ErrorInterceptor
from fluss_tiering.server.services import SERVICES, add_services
from fluss_tiering.server.settings import SAFE_HEARTBEAT_TIMEOUT_MS, ServerSettings

_STOPPING: Final = FlussTieringError(ErrorCode.UNAVAILABLE, "the server is stopping: watch again when it is back")

log = structlog.get_logger(__name__)


class TieringServer:
    """A tiering server on the embedded storage.

    Attributes:
        port: that it listens on, once it is started.
        metrics_port: that it exports metrics on, where it does.
    """

    def __init__(self, settings: ServerSettings, *, clock: Clock | None = None) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self._running = AsyncExitStack()
        self.port = settings.port
        self.metrics_port = 0

    async def start(self) -> None:
        """Opens the data folder, loads the state and serves; when any of it fails, all that was opened is closed.

        Raises:
            FlussTieringError: DATA_DIR_IN_USE, CORRUPT_DATA, STORAGE; UNAVAILABLE when it cannot listen.
        """
        async with AsyncExitStack() as starting:
            await self._start(starting)
            self._running = starting.pop_all()
        log.info(
            "tiering server ready",
            host=self._settings.host,
            port=self.port,
            metrics_port=self.metrics_port or None,
            data_dir=str(self._settings.data_dir),
        )
        if self._settings.heartbeat_timeout < SAFE_HEARTBEAT_TIMEOUT_MS:
            log.warning(
                "heartbeat timeout is short for drivers, which send a heartbeat every 30 s: healthy rounds may fail",
                heartbeat_timeout_ms=self._settings.heartbeat_timeout,
                expected_at_least_ms=SAFE_HEARTBEAT_TIMEOUT_MS,
            )

    async def stop(self) -> None:
        """Takes no more calls, lets those in flight end within the grace, and closes storage and store."""
        await self._running.aclose()

    async def _start(self, stack: AsyncExitStack) -> None:
        settings = self._settings
        parts = await open_parts(settings, self._clock, stack)
        metrics = ServerMetrics(self._clock)
        metrics.collector.activate(parts)
        server = grpc.aio.server(
            interceptors=[metrics.rpc, ErrorInterceptor()],
            options=(
                # Otherwise a second server could share the port and get half of the calls.
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", settings.max_message_bytes),
                ("grpc.max_send_message_length", settings.max_message_bytes),
            ),
        )
        add_services(parts, server)
        healthy = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
        names = [service.name for service in SERVICES]
        reflection.enable_server_reflection((*names, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
        for service in ("", *names):
            await healthy.set(service, health_pb2.HealthCheckResponse.SERVING)
        self.port = _listen(server, settings.host, settings.port)
        if settings.metrics_enabled:
            self.metrics_port = stack.enter_context(metrics.exported(settings.host, _metrics_port(settings)))

        start_jobs(parts, settings, stack)
        stack.push_async_callback(server.stop, settings.shutdown_grace / 1000)
        # Before the grace, which is for calls that end by themselves.
        stack.callback(parts.coordinator.tiering.feed.end, _STOPPING)
        stack.push_async_callback(healthy.enter_graceful_shutdown)
        await server.start()


def run(settings: ServerSettings) -> None:
    """Serves until SIGTERM or SIGINT. Raises what `TieringServer.start` does."""
    configure_logs(settings.log_format, settings.log_level)
    asyncio.run(_run(settings))


async def _run(settings: ServerSettings) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    server = TieringServer(settings)
    await server.start()
    try:
        await stopped.wait()
        log.info("tiering server stopping")
    finally:
        await server.stop()
    log.info("tiering server stopped")


def _metrics_port(settings: ServerSettings) -> int:
    if settings.metrics_port is not None:
        return settings.metrics_port
    return settings.port + 1 if settings.port else 0


def _listen(server: grpc.aio.Server, host: str, port: int) -> int:
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        bound = server.add_insecure_port(address)
    except RuntimeError as error:
        bound, reason = 0, str(error)
    else:
        reason = "no address could be bound"
    if bound == 0:
        raise FlussTieringError(
            ErrorCode.UNAVAILABLE,
            f"cannot listen on {address}: {reason}; another program may have the port, choose a free one with --port",
        )
    return bound
