"""The gRPC server: it listens from the start, and passes each call to the present role of this server."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.edge.access import CallAccess
from fluss_tiering.server.edge.audit_interceptor import AuditInterceptor
from fluss_tiering.server.edge.audit_log import AuditLog
from fluss_tiering.server.edge.callers.authentication import Authenticated, Authentication, CallCredentials
from fluss_tiering.server.edge.callers.authenticators import authenticators_of
from fluss_tiering.server.edge.callers.issuer_keys import IssuerKeys
from fluss_tiering.server.edge.interceptor import ErrorInterceptor
from fluss_tiering.server.edge.limits import CallLimits
from fluss_tiering.server.edge.methods import METHODS, SERVICES
from fluss_tiering.server.edge.server_roles import Handler, Role, StartingRole, handler_for
from fluss_tiering.server.edge.tls import ServerTls
from fluss_tiering.server.settings.server_settings import ServerSettings
from fluss_tiering.wire.errors import named_server_id

_NAMES: Final = tuple(service.full_name for service in SERVICES)

KEEPALIVE_OPTIONS: Final = (
    # A call ends within a minute if the host of its client is lost, instead of after two hours. The server pings only
    # while a call is running, because an idle client need not look at its connection and so may not answer.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.http2.ping_timeout_ms", 20_000),
    ("grpc.http2.max_pings_without_data", 0),
    # Clients may ping as often as they like, also without a call: our own do every 8 s. A busy server may read several
    # pings at once, and must not end the connection, with its calls, for that.
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_permit_without_calls", 1),
)

_STREAMS_BEYOND: Final = 100

_CONNECTION_OPTIONS: Final = (
    # A connection that does not begin to speak HTTP/2, or TLS, is closed after this time.
    ("grpc.server_handshake_timeout_ms", 10_000),
    # So is one without calls, after a while. Clients open another one when they call again.
    ("grpc.max_connection_idle_ms", 15 * 60_000),
)

_METADATA_OPTIONS: Final = (
    # gRPC refuses metadata at random between these two sizes. With its own, 8 kB and 16 kB, a token that names many
    # groups would be accepted now and then.
    ("grpc.max_metadata_size", 20 << 10),
    ("grpc.absolute_max_metadata_size", 32 << 10),
)


_COMPRESSION_OPTIONS: Final = (
    # Bit 0 alone, which stands for no compression. gRPC inflates a message before anybody asks who calls: 64 kB become
    # 64 MB, and some versions of gRPC know no limit. Our clients never compress.
    ("grpc.compression_enabled_algorithms_bitset", 1),
)


class RpcListener:
    """Listens on the server's address.

    Attributes:
        port: The port that the server listens on.
        tls: The server's certificates; None without TLS.
        authentication: Finds out who calls.
        tokens: The static tokens of callers; None if the server knows none.
        grants_of: Returns the roles that a caller has now, by the names by which the server's files know it.
        watched_files: The files that say who may call, and those of TLS.
        issuer_keys: The keys of the issuer of OpenID Connect; None without one.
    """

    def __init__(
        self,
        settings: ServerSettings,
        interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
        on_lost_audit_lines: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Bind the address.

        Args:
            settings: The settings of the server, with the address and the limits.
            interceptors: The interceptors of every call, outside of the one that turns errors into statuses.
            on_lost_audit_lines: Called with the number of lines of the audit log that could not be written.

        Raises:
            FlussTieringError: UNAVAILABLE if the address cannot be bound; CORRUPT_DATA or STORAGE if a file that
                says who may call cannot be read; STORAGE if the audit log cannot be written.
        """
        self._switch = _Switch()
        self.tls = None if settings.tls_files is None else ServerTls(settings.tls_files)
        self.issuer_keys = None if settings.oidc is None else IssuerKeys(settings.oidc)
        found = authenticators_of(settings, self.issuer_keys)
        self.tokens = found.tokens
        self.grants_of = found.grants_of
        self.watched_files = [*found.watched, *([self.tls.watched] if self.tls else [])]
        self.authentication = Authentication([self._switch, *found.kinds] if settings.asks_callers else None)
        limits = CallLimits(settings.max_concurrent_calls, settings.max_request_bytes, settings.max_message_bytes)
        self._audit = AuditLog(settings.audit_log, on_lost_audit_lines) if settings.audit_log else None
        self._audited = AuditInterceptor(self._audit, all_calls=settings.audit_log_calls == "all")
        self._errors = ErrorInterceptor(self._switch.present_check, limits, CallAccess(self.authentication))
        self._server = grpc.aio.server(
            interceptors=[*interceptors, self._audited, self._errors],
            options=(
                # Without this a second server could share the port and get half of the calls.
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", settings.max_message_bytes),
                # The answer with all entries of a list may be larger than any request.
                ("grpc.max_send_message_length", 2 * settings.max_message_bytes),
                # Above the limit of calls, whose refusal says what was wrong. Beyond this one, clients wait.
                ("grpc.max_concurrent_streams", settings.max_concurrent_calls + _STREAMS_BEYOND),
                *KEEPALIVE_OPTIONS,
                *_CONNECTION_OPTIONS,
                *_METADATA_OPTIONS,
                *_COMPRESSION_OPTIONS,
            ),
        )
        self._server.add_generic_rpc_handlers((self._switch,))
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self.port = _listen(self._server, settings.host, settings.port, self.tls)
        if self._audit is not None:
            self._audit.start()

    async def start(self) -> None:
        """Answer calls from now on, though only with the error that the server is starting."""
        await self.set_serving(False, server_serves=False)
        await self._server.start()
        if self.issuer_keys is not None:
            await self.issuer_keys.start()

    def serve(self, role: Role) -> None:
        """Pass the calls that come from now on to a role."""
        self._switch.role = role

    async def set_serving(self, services_serve: bool, *, server_serves: bool = True) -> None:
        """Set the answers of the health service.

        Args:
            services_serve: Whether this server is the one that serves the services.
            server_serves: Whether this server answers calls, by itself or by forwarding them.
        """
        await self._health.set("", _status(server_serves))
        for name in _NAMES:
            await self._health.set(name, _status(services_serve))

    async def stop(self, grace_s: float) -> None:
        """Accept no more calls, and let running calls end within the grace period."""
        await self._health.enter_graceful_shutdown()
        # These streams would not end by themselves during the grace period.
        self._switch.role.end_streams()
        if self.issuer_keys is not None:
            await self.issuer_keys.stop()
        await self._server.stop(grace_s)
        if self._audit is not None:
            await asyncio.to_thread(self._audit.close)


class _Switch(grpc.GenericRpcHandler):
    """Passes each call to the present role."""

    def __init__(self) -> None:
        self.role: Role = StartingRole()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Handler | None:
        method = str(handler_call_details.method)
        if method not in METHODS:
            return None
        return handler_for(self.role, method, named_server_id(handler_call_details.invocation_metadata))

    def authenticate(self, credentials: CallCredentials) -> Authenticated | Awaitable[Authenticated] | None:
        """Return the caller, if the call brings the token of a round that the present role knows."""
        return self.role.executors.authenticate(credentials)

    def present_check(self) -> Callable[[], None]:
        return self.role.check


def _status(serves: bool) -> health_pb2.HealthCheckResponse.ServingStatus.ValueType:
    return health_pb2.HealthCheckResponse.SERVING if serves else health_pb2.HealthCheckResponse.NOT_SERVING


def _listen(server: grpc.aio.Server, host: str, port: int, tls: ServerTls | None) -> int:
    address = address_of(host, port)
    try:
        bound = server.add_secure_port(address, tls.credentials()) if tls else server.add_insecure_port(address)
    except RuntimeError:
        bound = 0
    if bound == 0:
        raise FlussTieringError(ErrorCode.UNAVAILABLE, f"cannot listen on {address}: {_advice(_why_not(host, port))}")
    return bound


def _advice(error: OSError | None) -> str:
    """Return why nothing can listen on an address, and what to do about it."""
    if error is None:
        return "no address could be bound; check that the address belongs to this machine"
    if error.errno == errno.EADDRINUSE:
        return (
            f"{error.strerror}; another server, perhaps this one, runs on that port already: stop it, or choose "
            "another port with --port, and name it to clients with -s HOST:PORT or in the variable "
            "FLUSS_TIERING_SERVER. A second server beside another one also needs a free port for its metrics: "
            "-D metrics-port=PORT"
        )
    if error.errno == errno.EACCES:
        return (
            f"{error.strerror}; ports below 1024 are for the administrator of the machine: choose another with --port"
        )
    return f"{error.strerror}; check that the address belongs to this machine, or choose another with --host"


def _why_not(host: str, port: int) -> OSError | None:
    """Return why the system lets nothing listen on an address; None if it does. gRPC's words do not help."""
    try:
        for family, kind, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            with socket.socket(family, kind) as tried:
                tried.bind(address)
    except OSError as error:
        return error
    return None


def address_of(host: str, port: int) -> str:
    """Return "host:port", with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
