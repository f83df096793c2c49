"""The gRPC services of a server: their names, and the servicers behind them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import grpc.aio

from fluss_tiering.api.v1 import kv_scan_pb2, kv_snapshot_leases_pb2, lake_tiering_pb2, tables_pb2
from fluss_tiering.api.v1.kv_scan_pb2_grpc import add_KvScanServicer_to_server
from fluss_tiering.api.v1.kv_snapshot_leases_pb2_grpc import add_KvSnapshotLeasesServicer_to_server
from fluss_tiering.api.v1.lake_tiering_pb2_grpc import add_LakeTieringServicer_to_server
from fluss_tiering.api.v1.tables_pb2_grpc import add_TablesServicer_to_server
from fluss_tiering.server.servicers.kv_scan import KvScanServicer
from fluss_tiering.server.servicers.leases import LeasesServicer
from fluss_tiering.server.servicers.parts import ServerParts
from fluss_tiering.server.servicers.tables import TablesServicer
from fluss_tiering.server.servicers.tiering import LakeTieringServicer


@dataclass(frozen=True, slots=True)
class Service:
    """One service.

    Attributes:
        name: in full, as callers name it.
        make: its servicer, given the server's parts.
        add: the generated function that adds the servicer to a server.
    """

    name: str
    make: Callable[[ServerParts], Any]
    add: Callable[[Any, grpc.aio.Server], None]


SERVICES: Final = (
    Service(
        tables_pb2.DESCRIPTOR.services_by_name["Tables"].full_name,
        TablesServicer,
        add_TablesServicer_to_server,
    ),
    Service(
        kv_snapshot_leases_pb2.DESCRIPTOR.services_by_name["KvSnapshotLeases"].full_name,
        LeasesServicer,
        add_KvSnapshotLeasesServicer_to_server,
    ),
    Service(
        lake_tiering_pb2.DESCRIPTOR.services_by_name["LakeTiering"].full_name,
        LakeTieringServicer,
        add_LakeTieringServicer_to_server,
    ),
    Service(
        kv_scan_pb2.DESCRIPTOR.services_by_name["KvScan"].full_name,
        KvScanServicer,
        add_KvScanServicer_to_server,
    ),
)


def add_services(parts: ServerParts, server: grpc.aio.Server) -> None:
    """Adds all services to a server."""
    for service in SERVICES:
        service.add(service.make(parts), server)
