"""Makes the handlers of all gRPC services of an active server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from fluss_tiering.api.v1.kv_scan_pb2_grpc import add_KvScanServicer_to_server
from fluss_tiering.api.v1.kv_snapshot_leases_pb2_grpc import add_KvSnapshotLeasesServicer_to_server
from fluss_tiering.api.v1.lake_tiering_pb2_grpc import add_LakeTieringServicer_to_server
from fluss_tiering.api.v1.tables_pb2_grpc import add_TablesServicer_to_server
from fluss_tiering.server.components import ServerComponents
from fluss_tiering.server.edge.server_roles import Handler
from fluss_tiering.server.services.kv_scan import KvScanServicer
from fluss_tiering.server.services.kv_snapshot_leases import LeasesServicer
from fluss_tiering.server.services.lake_tiering import LakeTieringServicer
from fluss_tiering.server.services.table_access import TableAccess
from fluss_tiering.server.services.tables import TablesServicer


def active_handlers(components: ServerComponents) -> dict[str, Handler]:
    """Return the handlers of all services of an active server, by the path of the method."""
    access = TableAccess(components)
    collected = _Handlers()
    server = cast("Any", collected)
    add_TablesServicer_to_server(TablesServicer(components), server)
    add_KvSnapshotLeasesServicer_to_server(LeasesServicer(components, access), server)
    add_LakeTieringServicer_to_server(LakeTieringServicer(components), server)
    add_KvScanServicer_to_server(KvScanServicer(components), server)
    return {method: access.wrap(handler, method) for method, handler in collected.by_method.items()}


class _Handlers:
    """Collects the handlers that a generated function would add to a gRPC server."""

    def __init__(self) -> None:
        self.by_method: dict[str, Handler] = {}

    def add_generic_rpc_handlers(self, _handlers: object) -> None:
        """Do nothing: these are the same handlers, which can only be asked for one by one."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Handler]) -> None:
        """Keep all handlers of a service."""
        self.by_method |= {f"/{service}/{method}": handler for method, handler in handlers.items()}
