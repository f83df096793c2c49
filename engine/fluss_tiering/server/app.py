"""The tiering server as a whole: it starts and stops its components in order, and runs until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from stat import S_IMODE, S_IRWXG, S_IRWXO
from typing import Any, Final

import structlog

from fluss_tiering.model.clock import Clock, SystemClock, uptime_s
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.backends.backend import Backend
from fluss_tiering.server.backends.cluster.backend import ClusterBackend
from fluss_tiering.server.backends.embedded.backend import EmbeddedBackend
from fluss_tiering.server.components import open_components
from fluss_tiering.server.core import gc_tuning
from fluss_tiering.server.core.background import BackgroundJobs
from fluss_tiering.server.core.store.database import Fence
from fluss_tiering.server.edge.callers.executor_tokens import UncheckedExecutorTokens
from fluss_tiering.server.edge.callers.roles import Grant
from fluss_tiering.server.edge.listener import RpcListener
from fluss_tiering.server.edge.server_roles import ActiveRole, Role
from fluss_tiering.server.failover.replica import FailoverReplica
from fluss_tiering.server.logs import configure_logs
from fluss_tiering.server.metrics.exporter import ServerMetrics
from fluss_tiering.server.services.handlers import active_handlers
from fluss_tiering.server.settings.server_settings import SAFE_HEARTBEAT_TIMEOUT_MS, ServerSettings, unknown_variables

PRIVATE_UMASK: Final = S_IRWXG | S_IRWXO
"""With this umask, nobody else reads what the server writes: rows, and the key that signs tokens of executors."""

logger = structlog.get_logger(__name__)


def guards_of(settings: ServerSettings) -> str:
    """Return what guards the server's ports, for example "tls, client certificates, tokens"."""
    guards = {
        "tls": settings.tls_files is not None,
        "client certificates": settings.tls_client_ca_file is not None,
        "tokens": settings.tokens_file is not None,
        "oidc": settings.oidc is not None,
    }
    return ", ".join(name for name, is_there in guards.items() if is_there) or "nothing"


def raise_descriptor_limit() -> None:
    """Let this process open as many files and connections as the system permits it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # Some systems permit fewer than they say.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def warn_of_open_folder(folder: Path) -> None:
    """Log it if others on the machine may look into the data folder."""
    mode = S_IMODE(folder.stat().st_mode)
    if mode & PRIVATE_UMASK:
        logger.warning(
            "others on this machine may read what holds rows and keys: take the rights of group and others away",
            path=str(folder),
            mode=f"{mode:04o}",
            command=f"chmod go-rwx {folder}",
        )


_STOPPING: Final = FlussTieringError(ErrorCode.UNAVAILABLE, "the server is stopping: watch again when it is back")
_NOT_ACTIVE: Final = FlussTieringError(
    ErrorCode.UNAVAILABLE, "this server is no longer the active one: watch again, and the active server answers"
)
_SWITCH_INTERVAL_S: Final = 0.0005
"""How long a thread keeps the interpreter while another one waits for it.

The control thread lets go of the interpreter at each statement for the database. With Python's 5 ms it waits that long
each time while another thread computes, so that a turn of 5 ms takes 50 ms and more.
"""

_HANDOVER_GRACE_S: Final = 2.0
"""How long running calls may take at most when a server stops that another one may take over from."""


def choose_backend(settings: ServerSettings) -> Backend[Any]:
    """Return the backend that the settings ask for. No other place in the server knows all kinds of storage."""
    return ClusterBackend(settings) if settings.fluss else EmbeddedBackend(settings)


class TieringServer:
    """A tiering server for a Fluss cluster or for its own tables. On PostgreSQL, one of several servers is active.

    Args:
        clock: The clock of the managers and of the storage.
        monotonic: A clock in seconds that never goes back, for the leadership.
        end_process: Ends the process at once, if this server lost the leadership and cannot close; None to wait.

    Attributes:
        port: The port that the server listens on, once it is started.
        metrics_port: The port that the server exports metrics on; 0 if it exports none.
    """

    def __init__(
        self,
        settings: ServerSettings,
        *,
        clock: Clock | None = None,
        monotonic: Callable[[], float] = uptime_s,
        end_process: Callable[[], None] | None = None,
    ) -> None:
        self._settings = settings
        self._backend = choose_backend(settings)
        self._clock = clock or SystemClock()
        self._monotonic = monotonic
        self._end_process = end_process
        self._metrics = ServerMetrics(self._clock)
        self._listener: RpcListener | None = None
        self._replica: FailoverReplica | None = None
        self._exported = AsyncExitStack()
        self._active = AsyncExitStack()
        self.port = settings.port
        self.metrics_port = 0

    @property
    def is_active(self) -> bool:
        """Whether this is the active server. A single server always is."""
        return self._replica is None or self._replica.is_active

    async def start(self) -> None:
        """Listen, open the storage, load the state and serve; or wait while another server is active.

        If a step fails, everything that was opened is closed.

        Raises:
            FlussTieringError: DATA_DIR_IN_USE if another server holds the data folder; CORRUPT_DATA if storage or
                database are damaged; STORAGE if a file cannot be used; UNAVAILABLE if the server cannot listen, or
                cannot reach its database or its Fluss cluster.
        """
        try:
            await self._start()
        except BaseException:
            await self._close(grace_s=0)
            raise
        logger.info(
            "tiering server ready" if self.is_active else "tiering server waiting",
            host=self._settings.host,
            port=self.port,
            metrics_port=self.metrics_port or None,
            data_dir=str(self._settings.data_dir),
            fluss=self._settings.fluss or None,
            guarded_by=guards_of(self._settings),
            audit_log=self._settings.audit_log or None,
        )
        if self._settings.heartbeat_timeout_ms < SAFE_HEARTBEAT_TIMEOUT_MS:
            logger.warning(
                "heartbeat timeout is short for drivers, which send one every 30 s: healthy rounds may be interrupted",
                heartbeat_timeout_ms=self._settings.heartbeat_timeout_ms,
                expected_at_least_ms=SAFE_HEARTBEAT_TIMEOUT_MS,
            )

    async def stop(self) -> None:
        """Accept no more calls, let running calls end within the grace period, and close everything.

        A server that no longer leads closes at once: its calls cannot succeed, and another server waits for its data.
        If another server may take over, running calls have little time: their clients go on there.
        """
        grace_s = self._settings.shutdown_grace_ms / 1000
        if self._replica is not None:
            grace_s = min(grace_s, _HANDOVER_GRACE_S) if self.is_active else 0
        await self._close(grace_s)

    async def run_until(self, stopped: asyncio.Event) -> None:
        """Return when `stopped` is set.

        Raises:
            FlussTieringError: NOT_LEADER_OR_FOLLOWER if another server took over, after which this server must end;
                the errors of `start` if this server fails to take over.
        """
        waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(stopped.wait())]
        if self._replica is not None:
            waits.append(asyncio.ensure_future(self._replica.wait_until_lost()))
        done, pending = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for each in pending:
            each.cancel()
        for each in done:
            await each

    async def _start(self) -> None:
        settings = self._settings
        # First of all, so that a server whose port is taken leaves no files behind.
        self._listener = RpcListener(settings, [self._metrics.rpc], self._metrics.audit_lines_lost.inc)
        self.port = self._listener.port
        self._metrics.collector.tls = self._listener.tls
        self._metrics.collector.tokens = self._listener.tokens
        self._metrics.collector.watched_files = self._listener.watched_files
        self._metrics.collector.issuer_keys = self._listener.issuer_keys
        if settings.metrics_enabled:
            self.metrics_port = self._exported.enter_context(
                self._metrics.exported(
                    settings.host,
                    _metrics_port(settings),
                    authentication=self._listener.authentication,
                    tls=self._listener.tls,
                )
            )
        await self._listener.start()
        if settings.store_url is None:
            self._listener.serve(await self._open_active(self._active, None, lambda: None))
            await self._listener.set_serving(True)
        else:
            url = settings.store_url.get_secret_value()
            self._replica = FailoverReplica(
                settings,
                url,
                backend=self._backend,
                listener=self._listener,
                open_active=self._open_active,
                monotonic=self._monotonic,
                end_process=self._end_process,
            )
            self._metrics.collector.replica = self._replica
            await self._replica.start()

    async def _open_active(self, stack: AsyncExitStack, fence: Fence | None, check: Callable[[], None]) -> Role:
        """Open the components of the active server, and return the role that serves with them.

        Args:
            stack: Closes what is opened.
            fence: The check that every transaction of the store must pass; None if no other server may take over.
            check: Raises an error once this server is no longer the active one.
        """
        # Pushed first, so that it is called last: once all is closed, the garbage collector may free its memory.
        stack.callback(gc_tuning.release_all)
        with gc_tuning.loading():
            components = await open_components(
                self._settings,
                self._backend,
                stack,
                clock=self._clock,
                check=check,
                grants_of=self._grants_of,
                fence=fence,
            )
        warn_of_open_folder(self._settings.data_dir)
        self._metrics.collector.start(components)
        stack.callback(self._metrics.collector.stop)
        jobs = BackgroundJobs(components.jobs(self._settings), check)
        jobs.start()
        stack.push_async_callback(jobs.stop)

        def end_streams() -> None:
            components.managers.tiering.broadcaster.end(_STOPPING if _passes(check) else _NOT_ACTIVE)

        server_id = components.storage.describe().data_dir_id
        # Clients may name it.
        logger.info("tables and state loaded", server_id=server_id)
        return ActiveRole(
            active_handlers(components),
            check,
            end_streams,
            server_id,
            components.executor_tokens or UncheckedExecutorTokens(),
        )

    def _grants_of(self, names: Iterable[str]) -> tuple[Grant, ...]:
        return () if self._listener is None else self._listener.grants_of(names)

    async def _close(self, grace_s: float) -> None:
        """Close everything. What cannot be closed, for example on a full disk, keeps nothing else open."""
        async with AsyncExitStack() as closing:
            closing.push_async_callback(self._exported.aclose)
            if self._replica is not None:
                closing.push_async_callback(self._replica.close)
            closing.push_async_callback(self._active.aclose)
            if self._replica is not None:
                closing.push_async_callback(self._replica.stop)
            if self._listener is not None:
                closing.push_async_callback(self._listener.stop, grace_s)


def run(settings: ServerSettings) -> None:
    """Run a server until SIGTERM or SIGINT. Raises the errors of `TieringServer.start` and `run_until`."""
    configure_logs(settings.log_format, settings.log_level)
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    raise_descriptor_limit()
    for name, meant in unknown_variables(os.environ).items():
        logger.warning(
            "environment variable or file is not a setting and has no effect", variable=name, perhaps_meant=meant
        )
    os.umask(PRIVATE_UMASK)
    asyncio.run(_run(settings))


async def _run(settings: ServerSettings) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    server = TieringServer(settings, end_process=_end_process)
    await server.start()
    try:
        await server.run_until(stopped)
        logger.info("tiering server stopping")
    except FlussTieringError as error:
        logger.critical("tiering server ends", code=error.code.value, error=error.message)
        raise
    finally:
        await server.stop()
    logger.info("tiering server stopped")


def _passes(check: Callable[[], None]) -> bool:
    try:
        check()
    except FlussTieringError:
        return False
    return True


def _end_process() -> None:
    logger.critical("tiering server ends at once: it does not lead, and something that it waits for hangs")
    os._exit(1)


def _metrics_port(settings: ServerSettings) -> int:
    if settings.metrics_port is not None:
        return settings.metrics_port
    return settings.port + 1 if settings.port else 0
