"""The gRPC services of a server: their names, and the servicers behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.descriptor import ServiceDescriptor

from fluss_tiering.api.v1 import kv_scan_pb2, kv_snapshot_leases_pb2, lake_tiering_pb2, tables_pb2
from fluss_tiering.api.v1.kv_scan_pb2_grpc import add_KvScanServicer_to_server
from fluss_tiering.api.v1.kv_snapshot_leases_pb2_grpc import add_KvSnapshotLeasesServicer_to_server
from fluss_tiering.api.v1.lake_tiering_pb2_grpc import add_LakeTieringServicer_to_server
from fluss_tiering.api.v1.tables_pb2_grpc import add_TablesServicer_to_server
from fluss_tiering.server.components import ServerComponents
from fluss_tiering.server.rpc.kv_scan import KvScanServicer
from fluss_tiering.server.rpc.kv_snapshot_leases import LeasesServicer
from fluss_tiering.server.rpc.lake_tiering import LakeTieringServicer
from fluss_tiering.server.rpc.roles import Handler
from fluss_tiering.server.rpc.tables import TablesServicer


@dataclass(frozen=True, slots=True)
class Service:
    """One service.

    Attributes:
        make: its servicer, given the server's parts.
        add: the generated function that adds the servicer to a server.
    """

    descriptor: ServiceDescriptor
    make: Callable[[ServerComponents], Any]
    add: Callable[[Any, Any], None]

    @property
    def name(self) -> str:
        """In full, as callers name it."""
        return str(self.descriptor.full_name)

    @property
    def methods(self) -> list[str]:
        """The paths of its methods, as calls name them."""
        return [f"/{self.name}/{method.name}" for method in self.descriptor.methods]


SERVICES: Final = (
    Service(tables_pb2.DESCRIPTOR.services_by_name["Tables"], TablesServicer, add_TablesServicer_to_server),
    Service(
        kv_snapshot_leases_pb2.DESCRIPTOR.services_by_name["KvSnapshotLeases"],
        LeasesServicer,
        add_KvSnapshotLeasesServicer_to_server,
    ),
    Service(
        lake_tiering_pb2.DESCRIPTOR.services_by_name["LakeTiering"],
        LakeTieringServicer,
        add_LakeTieringServicer_to_server,
    ),
    Service(kv_scan_pb2.DESCRIPTOR.services_by_name["KvScan"], KvScanServicer, add_KvScanServicer_to_server),
)

METHODS: Final = frozenset(method for service in SERVICES for method in service.methods)


def handlers_of(components: ServerComponents, services: Iterable[Service] = SERVICES) -> dict[str, Handler]:
    """The handlers of services that work with these parts, by the path of the method."""
    handlers = _Handlers()
    for service in services:
        service.add(service.make(components), handlers)
    return handlers.by_method


class _Handlers:
    """Takes from the generated functions what they would add to a server."""

    def __init__(self) -> None:
        self.by_method: dict[str, Handler] = {}

    def add_generic_rpc_handlers(self, _handlers: object) -> None:
        """The same handlers, but only to be asked for one by one."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Handler]) -> None:
        """All handlers of a service."""
        self.by_method |= {f"/{service}/{method}": handler for method, handler in handlers.items()}
