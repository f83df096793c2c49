"""The role that each call takes, as the protos declare it."""

from __future__ import annotations

from typing import Final

from google.protobuf.descriptor import MethodDescriptor

from fluss_tiering.api.v1 import access_pb2
from fluss_tiering.server.rpc.services import SERVICES
from fluss_tiering.server.security.roles import Role

_PREFIX: Final = "PB_ROLE_"


def _role_of(method: MethodDescriptor) -> Role:
    value = method.GetOptions().Extensions[access_pb2.required_role]
    if value == access_pb2.PB_ROLE_UNSPECIFIED:
        raise TypeError(f"{method.full_name} has no required_role: each call must declare one in its proto")
    return Role(access_pb2.PbRole.Name(value).removeprefix(_PREFIX).lower())


def _methods() -> dict[str, MethodDescriptor]:
    return {f"/{service.name}/{method.name}": method for service in SERVICES for method in service.descriptor.methods}


REQUIRED_ROLES: Final = {path: _role_of(method) for path, method in _methods().items()}
"""The role of each call, by the path of its method. A call without one keeps this module from being loaded."""

OPEN_TO_EXECUTORS: Final = frozenset(
    path for path, method in _methods().items() if method.GetOptions().Extensions[access_pb2.open_to_executors]
)
"""The methods that the token of a round may call."""
