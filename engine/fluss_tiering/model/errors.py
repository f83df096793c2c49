"""The errors that all layers, the server and the client share, under the names that Fluss gives them.

Every error of this package is a `FlussTieringError` with an `ErrorCode`. The server sends the code with a gRPC status,
and the client turns it back into the same error: callers on both sides catch the same class.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final


class ErrorCode(StrEnum):
    """The kind of an error. `GRPC_STATUS_NAMES` says which gRPC status carries each code."""

    INVALID_REQUEST = "INVALID_REQUEST"
    """The request, an argument or a setting is not valid."""
    INVALID_TABLE = "INVALID_TABLE"
    """The definition, a name or an option of a table is not valid."""
    INVALID_ROWS = "INVALID_ROWS"
    """The rows do not fit the table, or there are too many of them for one write."""
    DATABASE_NOT_EXIST = "DATABASE_NOT_EXIST"
    """The database does not exist."""
    TABLE_NOT_EXIST = "TABLE_NOT_EXIST"
    """The table does not exist, was dropped, or is not tiered."""
    TABLE_ALREADY_EXIST = "TABLE_ALREADY_EXIST"
    """A table with this path exists already."""
    TABLE_WITHOUT_PRIMARY_KEY = "TABLE_WITHOUT_PRIMARY_KEY"
    """The call is for primary-key tables, but the table is a log table."""
    PARTITION_NOT_EXIST = "PARTITION_NOT_EXIST"
    """The partition does not exist."""
    KV_SNAPSHOT_NOT_EXIST = "KV_SNAPSHOT_NOT_EXIST"
    """The KV snapshot does not exist or was collected."""
    KV_SNAPSHOT_LEASE_NOT_EXIST = "KV_SNAPSHOT_LEASE_NOT_EXIST"
    """The lease does not exist or has expired."""
    STALE_ATTEMPT = "STALE_ATTEMPT"
    """A newer attempt began under the lease, or the attempt was cancelled."""
    LAKE_SNAPSHOT_NOT_EXIST = "LAKE_SNAPSHOT_NOT_EXIST"
    """No such lake snapshot is registered for the table."""
    LOG_OFFSET_OUT_OF_RANGE = "LOG_OFFSET_OUT_OF_RANGE"
    """The log offset lies outside the log."""
    FENCED_TIERING_EPOCH = "FENCED_TIERING_EPOCH"
    """The tiering epoch is not the table's present one: the round was ended or superseded."""
    INVALID_COORDINATOR = "INVALID_COORDINATOR"
    """Another server handed the round out."""
    INVALID_TIERING_STATE = "INVALID_TIERING_STATE"
    """The table is not tiered, or it is in a state that does not allow the step."""
    TABLE_BEING_TIERED = "TABLE_BEING_TIERED"
    """Another owner's round of the table runs."""
    TABLE_PARKED = "TABLE_PARKED"
    """The table failed too often in a row and must be resumed first."""
    LAKE_CONFLICT = "LAKE_CONFLICT"
    """Another writer changed the lake table since the round was planned."""
    LAKE_TABLE_MISMATCH = "LAKE_TABLE_MISMATCH"
    """The lake table has another layout or another history than the Fluss table."""
    NOT_LEADER_OR_FOLLOWER = "NOT_LEADER_OR_FOLLOWER"
    """This server is not the active one, or no longer."""
    SCANNER_EXPIRED = "SCANNER_EXPIRED"
    """The scanner was idle for too long, or its bucket was closed."""
    UNKNOWN_SCANNER_ID = "UNKNOWN_SCANNER_ID"
    """There is no scanner with this id."""
    INVALID_SCAN_REQUEST = "INVALID_SCAN_REQUEST"
    """The call of a scan is not valid, or it comes out of turn."""
    TOO_MANY_SCANNERS = "TOO_MANY_SCANNERS"
    """The bucket or the server has as many open scanners as it may have."""
    LIMIT_EXCEEDED = "LIMIT_EXCEEDED"
    """The server keeps as much of something as its settings allow."""
    STORAGE = "STORAGE"
    """The storage, the lake or the server's database failed."""
    CORRUPT_DATA = "CORRUPT_DATA"
    """Stored data is damaged or missing."""
    DATA_DIR_IN_USE = "DATA_DIR_IN_USE"
    """Another server uses the data folder."""
    AUTHENTICATION = "AUTHENTICATION"
    """The server does not know who calls: the credentials are missing, or they are not valid."""
    AUTHORIZATION = "AUTHORIZATION"
    """Who calls may not do this, or the Fluss cluster refuses it to the user whom it knows the server or driver by."""
    UNAVAILABLE = "UNAVAILABLE"
    """The server, the cluster or the database cannot be reached now; the call may succeed later."""
    UNSUPPORTED_VERSION = "UNSUPPORTED_VERSION"
    """The other side is of a version that does not know the call."""
    UNSUPPORTED_ROUND_FORMAT = "UNSUPPORTED_ROUND_FORMAT"
    """The driver makes rounds of another format than the server's version."""
    UNKNOWN = "UNKNOWN"
    """An error without a code that is known here, or a defect of the server."""


GRPC_STATUS_NAMES: Final[dict[ErrorCode, str]] = {
    ErrorCode.INVALID_REQUEST: "INVALID_ARGUMENT",
    ErrorCode.INVALID_TABLE: "INVALID_ARGUMENT",
    ErrorCode.INVALID_ROWS: "INVALID_ARGUMENT",
    ErrorCode.DATABASE_NOT_EXIST: "NOT_FOUND",
    ErrorCode.TABLE_NOT_EXIST: "NOT_FOUND",
    ErrorCode.TABLE_ALREADY_EXIST: "ALREADY_EXISTS",
    ErrorCode.TABLE_WITHOUT_PRIMARY_KEY: "FAILED_PRECONDITION",
    ErrorCode.PARTITION_NOT_EXIST: "NOT_FOUND",
    ErrorCode.KV_SNAPSHOT_NOT_EXIST: "NOT_FOUND",
    ErrorCode.KV_SNAPSHOT_LEASE_NOT_EXIST: "NOT_FOUND",
    ErrorCode.STALE_ATTEMPT: "FAILED_PRECONDITION",
    ErrorCode.LAKE_SNAPSHOT_NOT_EXIST: "NOT_FOUND",
    ErrorCode.LOG_OFFSET_OUT_OF_RANGE: "OUT_OF_RANGE",
    ErrorCode.FENCED_TIERING_EPOCH: "FAILED_PRECONDITION",
    ErrorCode.INVALID_COORDINATOR: "FAILED_PRECONDITION",
    ErrorCode.INVALID_TIERING_STATE: "FAILED_PRECONDITION",
    ErrorCode.TABLE_BEING_TIERED: "FAILED_PRECONDITION",
    ErrorCode.TABLE_PARKED: "FAILED_PRECONDITION",
    ErrorCode.LAKE_CONFLICT: "ABORTED",
    ErrorCode.LAKE_TABLE_MISMATCH: "FAILED_PRECONDITION",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "UNAVAILABLE",
    ErrorCode.SCANNER_EXPIRED: "FAILED_PRECONDITION",
    ErrorCode.UNKNOWN_SCANNER_ID: "NOT_FOUND",
    ErrorCode.INVALID_SCAN_REQUEST: "INVALID_ARGUMENT",
    ErrorCode.TOO_MANY_SCANNERS: "RESOURCE_EXHAUSTED",
    ErrorCode.LIMIT_EXCEEDED: "RESOURCE_EXHAUSTED",
    ErrorCode.STORAGE: "INTERNAL",
    ErrorCode.CORRUPT_DATA: "DATA_LOSS",
    ErrorCode.DATA_DIR_IN_USE: "FAILED_PRECONDITION",
    ErrorCode.AUTHENTICATION: "UNAUTHENTICATED",
    ErrorCode.AUTHORIZATION: "PERMISSION_DENIED",
    ErrorCode.UNAVAILABLE: "UNAVAILABLE",
    ErrorCode.UNSUPPORTED_VERSION: "UNIMPLEMENTED",
    ErrorCode.UNSUPPORTED_ROUND_FORMAT: "FAILED_PRECONDITION",
    ErrorCode.UNKNOWN: "INTERNAL",
}


SERVER_AWAY: Final = frozenset({ErrorCode.UNAVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER})
"""The codes of calls that no active server answered. A server may answer the same call a moment later."""


class FlussTieringError(Exception):
    """An error that says what was wrong, what was expected and what to do.

    Attributes:
        code: The kind of the error, for programs.
        message: The text for people. It contains no traceback, and its secrets are masked.
    """

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what is pickled, so that the error travels from Spark's workers to the driver unchanged."""
        return FlussTieringError, (self.code, self.message)


class DataDirInUseError(FlussTieringError):
    """The error that another server holds the data folder.

    Attributes:
        held: Which folder is held and by whom, as a sentence without a full stop and without advice.
    """

    def __init__(self, held: str) -> None:
        advice = "expected it to be free; stop that server or name another data folder"
        super().__init__(ErrorCode.DATA_DIR_IN_USE, f"{held}: {advice}")
        self.held = held

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what is pickled."""
        return DataDirInUseError, (self.held,)


class NotActiveError(FlussTieringError):
    """The error of a call that a standby server refused. Nothing of it was done.

    Attributes:
        active: The "host:port" of the active server; None if no server is active.
        reason: Why no server is active.
    """

    def __init__(self, active: str | None, reason: str = "") -> None:
        super().__init__(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"no server is active: {reason}; try again in a moment"
            if active is None
            else f"this server waits, and {active} is the active one: call that one, or give clients the addresses of "
            "all servers, as in HOST:PORT,HOST:PORT",
        )
        self.active = active
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what is pickled."""
        return NotActiveError, (self.active, self.reason)


class ThrottledError(FlussTieringError):
    """The error of a call that the server refused because the caller makes too many. Nothing of it was done.

    Attributes:
        retry_after_ms: When the same call may be answered, in milliseconds from now on.
    """

    def __init__(self, message: str, retry_after_ms: int) -> None:
        super().__init__(ErrorCode.UNAVAILABLE, message)
        self.retry_after_ms = retry_after_ms

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what is pickled."""
        return ThrottledError, (self.message, self.retry_after_ms)
