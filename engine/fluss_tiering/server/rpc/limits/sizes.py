"""How large a request may be, which depends on its method."""

from __future__ import annotations

from typing import Final

from google.protobuf.descriptor import Descriptor

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.rpc.required_roles import REQUIRED_ROLES
from fluss_tiering.server.rpc.services import SERVICES
from fluss_tiering.server.security.roles import Role

_TABLES: Final = "/fluss_tiering.v1.Tables/"
_TIERING: Final = "/fluss_tiering.v1.LakeTiering/"
_LEASES: Final = "/fluss_tiering.v1.KvSnapshotLeases/"

_ROWS: Final = frozenset({f"{_TABLES}WriteRows"})
"""Methods whose requests are mostly rows, which are not converted one by one."""

OF_BUCKETS: Final = frozenset({f"{_TIERING}PrepareLakeTableSnapshot", f"{_TIERING}CommitLakeTableSnapshot"})
"""Methods whose requests name each bucket of a table, of which there may be a quarter of a million."""

BULK: Final = frozenset({f"{_TABLES}FetchLog", f"{_TABLES}FetchKvSnapshot"})
"""Methods that answer with the stored rows of a table, as a stream of any length."""

LARGE_ANSWERS: Final = frozenset(
    {
        f"{_TABLES}ListTables",
        f"{_TABLES}GetTables",
        f"{_TABLES}ListBuckets",
        f"{_TABLES}GetKvSnapshotMetadata",
        f"{_TIERING}ListTieringStatuses",
        f"{_TIERING}ListTieringRounds",
        f"{_TIERING}GetLeaseOutcome",
        f"{_LEASES}ListKvSnapshotLeases",
        "/fluss_tiering.v1.KvScan/ScanKv",
    }
)
"""Methods whose one answer may have MiBs."""

CONTROL: Final = frozenset(method for method, role in REQUIRED_ROLES.items() if role is not Role.READER) - _ROWS
"""Methods that tiering and operators need, for which some calls are left when readers have taken all others."""

LIST_REQUEST_BYTES: Final = 1 << 20
"""The largest size of a request with lists. Ten thousand paths fit, and a million empty entries do not."""
SMALL_REQUEST_BYTES: Final = 64 << 10
"""The largest size of a request without any list."""


def _has_list(message: Descriptor, seen: frozenset[str] = frozenset()) -> bool:
    if message.full_name in seen:
        return False
    seen |= {message.full_name}
    return any(
        field.is_repeated or (field.message_type is not None and _has_list(field.message_type, seen))
        for field in message.fields
    )


_METHODS: Final = {
    f"/{service.name}/{method.name}": method for service in SERVICES for method in service.descriptor.methods
}
_WITH_LISTS: Final = frozenset(path for path, method in _METHODS.items() if _has_list(method.input_type))
STREAMED_REQUESTS: Final = frozenset(path for path, method in _METHODS.items() if method.client_streaming)
"""Methods that take any number of requests. All others take one."""


class RequestSizes:
    """The largest sizes of requests, as an operator sets them.

    Args:
        request_bytes: The largest size of a request without rows.
        message_bytes: The largest size of a request with rows.
    """

    def __init__(self, request_bytes: int, message_bytes: int) -> None:
        self._request_bytes = request_bytes
        self._message_bytes = message_bytes

    def check(self, message: bytes, method: str) -> None:
        """Check the size of a request before it is decoded.

        Raises:
            FlussTieringError: INVALID_REQUEST if it is too large.
        """
        if method in _ROWS:
            limit, why = self._message_bytes, "max-message-bytes allows"
        else:
            limit, why = self._request_bytes, "max-request-bytes allows"
            if method not in OF_BUCKETS:
                own = LIST_REQUEST_BYTES if method in _WITH_LISTS else SMALL_REQUEST_BYTES
                if own < limit:
                    limit, why = own, "such a request may have"
        if len(message) > limit:
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"the request of {method.rpartition('/')[2]} has {len(message)} bytes, and {why} {limit}: "
                "send several smaller requests",
            )
