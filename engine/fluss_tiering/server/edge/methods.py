"""The gRPC methods: what their protos declare, and what their requests name, which are tables and leases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from functools import cache
from itertools import islice
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message

from fluss_tiering.api.v1 import (
    access_pb2,
    common_pb2,
    kv_scan_pb2,
    kv_snapshot_leases_pb2,
    lake_tiering_pb2,
    tables_pb2,
)
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

REQUEST_SIZES: Final = {
    path: method.GetOptions().Extensions[access_pb2.request_size] for path, method in METHODS.items()
}
"""How large the request of each call may be, by the path of its method."""


MAX_NAMES: Final = 20
"""The number of names of each kind in a line. Of further ones, a line has the number."""

MAX_NAME_CHARS: Final = 256
"""The number of characters to which a name is cut."""

_MAX_SCANNED: Final = 10_000
"""The number of entries of a field that are looked at."""


class Kind(Enum):
    """What a field of a request names. The value is what the audit log calls it."""

    PATH = "tables"
    TABLE_ID = "table_ids"
    LEASE = "leases"


class Named:
    """The names in the requests of one call."""

    def __init__(self) -> None:
        self._names: dict[Kind, dict[str | int, None]] = {}

    def add(self, request: Message) -> None:
        """Add what a request names."""
        for kind, value in names_in(request, _MAX_SCANNED):
            self._names.setdefault(kind, {})[_shown(kind, value)] = None

    def fields(self) -> dict[str, object]:
        """Return the fields of a line: `tables`, `table_ids` and `leases`, and `more_tables` and so on."""
        fields: dict[str, object] = {}
        for kind, names in self._names.items():
            fields[kind.value] = list(islice(names, MAX_NAMES))
            if len(names) > MAX_NAMES:
                fields[f"more_{kind.value}"] = len(names) - MAX_NAMES
        return fields


def cut_name(name: str) -> str:
    """Return a name with `MAX_NAME_CHARS` at most. A name that was cut ends with "…"."""
    return name if len(name) <= MAX_NAME_CHARS else name[: MAX_NAME_CHARS - 1] + "…"


def names_in(message: Message, at_most: int | None = None) -> Iterator[tuple[Kind, Any]]:
    """Yield what a message names: a `PbTablePath`, the id of a table or that of a lease.

    Args:
        at_most: The number of entries of a field that are looked at; None for all of them.
    """
    for field, kind in _plan(message.DESCRIPTOR):
        for value in _values(message, field, at_most):
            if kind is None:
                yield from names_in(value, at_most)
            else:
                yield kind, value


def is_repeated(field: FieldDescriptor) -> bool:
    """Return whether a field is a list or a map. `FieldDescriptor.is_repeated` came with protobuf 6.31."""
    if hasattr(field, "is_repeated"):
        return field.is_repeated
    older: Any = field
    return bool(older.label == FieldDescriptor.LABEL_REPEATED)


def _shown(kind: Kind, value: Any) -> str | int:  # noqa: ANN401 - what a field holds
    if kind is Kind.TABLE_ID:
        return int(value)
    return cut_name(f"{value.database_name}.{value.table_name}" if kind is Kind.PATH else value)


def _values(message: Message, field: FieldDescriptor, at_most: int | None) -> Iterable[Any]:
    value = getattr(message, field.name)
    if is_repeated(field):
        return islice(value, at_most)
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        return (value,) if message.HasField(field.name) else ()
    # An id that is not set is 0 for the services, which is the id of a cluster's first table.
    return (value,) if value or field.name == "table_id" else ()


@cache
def _plan(descriptor: Descriptor) -> tuple[tuple[FieldDescriptor, Kind | None], ...]:
    """Return the fields of a message that name something, or that hold messages that do, of which the kind is None."""
    return tuple((field, _kind(field)) for field in descriptor.fields if _names_something(field, frozenset()))


def _kind(field: FieldDescriptor) -> Kind | None:
    if field.message_type is None:
        return {"table_id": Kind.TABLE_ID, "lease_id": Kind.LEASE}.get(field.name)
    return Kind.PATH if field.message_type.full_name == common_pb2.PbTablePath.DESCRIPTOR.full_name else None


def _names_something(field: FieldDescriptor, outer: frozenset[str]) -> bool:
    of = field.message_type
    if _kind(field) is not None or of is None:
        return _kind(field) is not None
    # A type may contain itself: PbDataType does.
    inner = outer | {of.full_name}
    return of.full_name not in outer and any(_names_something(each, inner) for each in of.fields)
