"""The gRPC services of a server: their names, their servicers, and what the protos declare of their methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

from fluss_tiering.api.v1 import access_pb2, kv_scan_pb2, kv_snapshot_leases_pb2, lake_tiering_pb2, tables_pb2
from fluss_tiering.api.v1.kv_scan_pb2_grpc import add_KvScanServicer_to_server
from fluss_tiering.api.v1.kv_snapshot_leases_pb2_grpc import add_KvSnapshotLeasesServicer_to_server
from fluss_tiering.api.v1.lake_tiering_pb2_grpc import add_LakeTieringServicer_to_server
from fluss_tiering.api.v1.tables_pb2_grpc import add_TablesServicer_to_server
from fluss_tiering.server.components import ServerComponents
from fluss_tiering.server.rpc.kv_scan import KvScanServicer
from fluss_tiering.server.rpc.kv_snapshot_leases import LeasesServicer
from fluss_tiering.server.rpc.roles import Handler
from fluss_tiering.server.rpc.scope.storage import VisibleStorage
from fluss_tiering.server.rpc.tables import TablesServicer
from fluss_tiering.server.rpc.tiering.lake_tiering import LakeTieringServicer
from fluss_tiering.server.security.roles import Role


@dataclass(frozen=True, slots=True)
class Service:
    """A gRPC service.

    Attributes:
        descriptor: The service as the protos define it.
        make: Makes the servicer of an active server.
        add: The generated function that adds a servicer to a gRPC server.
    """

    descriptor: ServiceDescriptor
    make: Callable[[ServerComponents], Any]
    add: Callable[[Any, Any], None]

    @property
    def name(self) -> str:
        """The full name, as callers use it."""
        return str(self.descriptor.full_name)

    @property
    def methods(self) -> list[str]:
        """The paths of the methods, as calls name them."""
        return [f"/{self.name}/{method.name}" for method in self.descriptor.methods]

    def handlers(self, servicer: object) -> dict[str, Handler]:
        """Return the handlers that call a servicer, by the path of the method."""
        handlers = _Handlers()
        self.add(servicer, handlers)
        return handlers.by_method


TABLES: Final = Service(tables_pb2.DESCRIPTOR.services_by_name["Tables"], TablesServicer, add_TablesServicer_to_server)
KV_SNAPSHOT_LEASES: Final = Service(
    kv_snapshot_leases_pb2.DESCRIPTOR.services_by_name["KvSnapshotLeases"],
    LeasesServicer,
    add_KvSnapshotLeasesServicer_to_server,
)
LAKE_TIERING: Final = Service(
    lake_tiering_pb2.DESCRIPTOR.services_by_name["LakeTiering"],
    LakeTieringServicer,
    add_LakeTieringServicer_to_server,
)
KV_SCAN: Final = Service(
    kv_scan_pb2.DESCRIPTOR.services_by_name["KvScan"], KvScanServicer, add_KvScanServicer_to_server
)

SERVICES: Final = (TABLES, KV_SNAPSHOT_LEASES, LAKE_TIERING, KV_SCAN)

_DESCRIBED: Final = {
    f"/{service.name}/{method.name}": method for service in SERVICES for method in service.descriptor.methods
}
METHODS: Final = frozenset(_DESCRIBED)

STREAMED_REQUESTS: Final = frozenset(path for path, method in _DESCRIBED.items() if method.client_streaming)
"""Methods that take any number of requests. All others take one."""


def _role_of(method: MethodDescriptor) -> Role:
    value = method.GetOptions().Extensions[access_pb2.required_role]
    if value == access_pb2.PB_ROLE_UNSPECIFIED:
        raise TypeError(f"{method.full_name} has no required_role: each call must declare one in its proto")
    return Role(access_pb2.PbRole.Name(value).removeprefix("PB_ROLE_").lower())


REQUIRED_ROLES: Final = {path: _role_of(method) for path, method in _DESCRIBED.items()}
"""The role of each call, by the path of its method. A call without one keeps this module from being loaded."""

OPEN_TO_EXECUTORS: Final = frozenset(
    path for path, method in _DESCRIBED.items() if method.GetOptions().Extensions[access_pb2.open_to_executors]
)
"""The methods that the token of a round may call."""


def active_handlers(components: ServerComponents) -> dict[str, Handler]:
    """Return the handlers of all services of an active server, by the path of the method.

    They see the storage as callers do.
    """
    components = replace(components, storage=VisibleStorage(components.storage))
    handlers: dict[str, Handler] = {}
    for service in SERVICES:
        handlers |= service.handlers(service.make(components))
    return handlers


class _Handlers:
    """Collects the handlers that a generated function would add to a gRPC server."""

    def __init__(self) -> None:
        self.by_method: dict[str, Handler] = {}

    def add_generic_rpc_handlers(self, _handlers: object) -> None:
        """Do nothing: these are the same handlers, which can only be asked for one by one."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Handler]) -> None:
        """Keep all handlers of a service."""
        self.by_method |= {f"/{service}/{method}": handler for method, handler in handlers.items()}
