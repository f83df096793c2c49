"""The gRPC services of a server, and what their protos declare of each method."""

from __future__ import annotations

from typing import Final

from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

from fluss_tiering.api.v1 import access_pb2, kv_scan_pb2, kv_snapshot_leases_pb2, lake_tiering_pb2, tables_pb2
from fluss_tiering.server.edge.callers.roles import Role

SERVICES: Final[tuple[ServiceDescriptor, ...]] = (
    tables_pb2.DESCRIPTOR.services_by_name["Tables"],
    kv_snapshot_leases_pb2.DESCRIPTOR.services_by_name["KvSnapshotLeases"],
    lake_tiering_pb2.DESCRIPTOR.services_by_name["LakeTiering"],
    kv_scan_pb2.DESCRIPTOR.services_by_name["KvScan"],
)

METHODS: Final[dict[str, MethodDescriptor]] = {
    f"/{service.full_name}/{method.name}": method for service in SERVICES for method in service.methods
}
"""The methods, by the paths with which calls name them."""


def _role_of(method: MethodDescriptor) -> Role:
    value = method.GetOptions().Extensions[access_pb2.required_role]
    if value == access_pb2.PB_ROLE_UNSPECIFIED:
        raise TypeError(f"{method.full_name} has no required_role: each call must declare one in its proto")
    return Role(access_pb2.PbRole.Name(value).removeprefix("PB_ROLE_").lower())


REQUIRED_ROLES: Final = {path: _role_of(method) for path, method in METHODS.items()}
"""The role of each call, by the path of its method. A call without one keeps this module from being loaded."""

OPEN_TO_EXECUTORS: Final = frozenset(
    path for path, method in METHODS.items() if method.GetOptions().Extensions[access_pb2.open_to_executors]
)
"""The methods that the token of a round may call."""
