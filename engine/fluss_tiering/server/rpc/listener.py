"""The gRPC server: it listens from the start, and passes each call to the present role of this server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.rpc.interceptor import ErrorInterceptor
from fluss_tiering.server.rpc.limits import CallLimits
from fluss_tiering.server.rpc.roles import Handler, Role, StartingRole, handler_for
from fluss_tiering.server.rpc.services import METHODS, SERVICES
from fluss_tiering.server.settings import ServerSettings
from fluss_tiering.wire.server_id import named_server_id

_NAMES: Final = tuple(service.name for service in SERVICES)

KEEPALIVE_OPTIONS: Final = (
    # A call ends within a minute if the host of its client is lost, instead of after two hours. The server pings only
    # while a call is running, because an idle client need not look at its connection and so may not answer.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.http2.ping_timeout_ms", 20_000),
    ("grpc.http2.max_pings_without_data", 0),
    # How often clients may ping, also without a call: our own do every 8 s. A client that pings more often than the
    # server permits loses its connection.
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
)


class RpcListener:
    """Listens on the server's address.

    Attributes:
        port: The port that the server listens on.
    """

    def __init__(self, settings: ServerSettings, interceptors: Sequence[grpc.aio.ServerInterceptor] = ()) -> None:
        """Bind the address.

        Args:
            settings: The settings of the server, with the address and the limits.
            interceptors: The interceptors of every call, outside of the one that turns errors into statuses.

        Raises:
            FlussTieringError: UNAVAILABLE if the address cannot be bound.
        """
        self._switch = _Switch()
        limits = CallLimits(settings.max_request_bytes, settings.max_message_bytes, settings.max_concurrent_calls)
        self._server = grpc.aio.server(
            interceptors=[*interceptors, ErrorInterceptor(self._switch.present_check, limits)],
            options=(
                # Without this a second server could share the port and get half of the calls.
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", settings.max_message_bytes),
                ("grpc.max_send_message_length", settings.max_message_bytes),
                *KEEPALIVE_OPTIONS,
            ),
        )
        self._server.add_generic_rpc_handlers((self._switch,))
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection((*_NAMES, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server)
        self.port = _listen(self._server, settings.host, settings.port)

    async def start(self) -> None:
        """Answer calls from now on, though only with the error that the server is starting."""
        await self.set_serving(False, server_serves=False)
        await self._server.start()

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
        await self._server.stop(grace_s)


class _Switch(grpc.GenericRpcHandler):
    """Passes each call to the present role."""

    def __init__(self) -> None:
        self.role: Role = StartingRole()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Handler | None:
        method = str(handler_call_details.method)
        if method not in METHODS:
            return None
        return handler_for(self.role, method, named_server_id(handler_call_details.invocation_metadata))

    def present_check(self) -> Callable[[], None]:
        return self.role.check


def _status(serves: bool) -> health_pb2.HealthCheckResponse.ServingStatus.ValueType:
    return health_pb2.HealthCheckResponse.SERVING if serves else health_pb2.HealthCheckResponse.NOT_SERVING


def _listen(server: grpc.aio.Server, host: str, port: int) -> int:
    address = address_of(host, port)
    try:
        bound = server.add_insecure_port(address)
    except RuntimeError as error:
        bound, reason = 0, str(error)
    else:
        reason = "no address could be bound"
    if bound == 0:
        raise FlussTieringError(
            ErrorCode.UNAVAILABLE,
            f"cannot listen on {address}: {reason}; check that the address belongs to this "
            "machine, or choose a free port with --port if another program has this one",
        )
    return bound


def address_of(host: str, port: int) -> str:
    """Return "host:port", with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
