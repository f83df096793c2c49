"""The errors that cross layers and the wire, with the names that Fluss gives them.

Every error of ours is a `FlussTieringError` with an `ErrorCode`. The server turns the code into a gRPC status with the
code's name in its details, the client turns it back: a caller on either side catches the same class.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class ErrorCode(StrEnum):
    """What kind of error it is; `GRPC_STATUS_NAMES` says which gRPC status carries it."""

    INVALID_REQUEST = "INVALID_REQUEST"
    INVALID_TABLE = "INVALID_TABLE"
    INVALID_ROWS = "INVALID_ROWS"
    DATABASE_NOT_EXIST = "DATABASE_NOT_EXIST"
    TABLE_NOT_EXIST = "TABLE_NOT_EXIST"
    TABLE_ALREADY_EXIST = "TABLE_ALREADY_EXIST"
    TABLE_WITHOUT_PRIMARY_KEY = "TABLE_WITHOUT_PRIMARY_KEY"
    PARTITION_NOT_EXIST = "PARTITION_NOT_EXIST"
    KV_SNAPSHOT_NOT_EXIST = "KV_SNAPSHOT_NOT_EXIST"
    KV_SNAPSHOT_LEASE_NOT_EXIST = "KV_SNAPSHOT_LEASE_NOT_EXIST"
    STALE_ATTEMPT = "STALE_ATTEMPT"
    LAKE_SNAPSHOT_NOT_EXIST = "LAKE_SNAPSHOT_NOT_EXIST"
    LOG_OFFSET_OUT_OF_RANGE = "LOG_OFFSET_OUT_OF_RANGE"
    FENCED_TIERING_EPOCH = "FENCED_TIERING_EPOCH"
    INVALID_COORDINATOR = "INVALID_COORDINATOR"
    INVALID_TIERING_STATE = "INVALID_TIERING_STATE"
    TABLE_BEING_TIERED = "TABLE_BEING_TIERED"
    TABLE_PARKED = "TABLE_PARKED"
    LAKE_CONFLICT = "LAKE_CONFLICT"
    LAKE_TABLE_MISMATCH = "LAKE_TABLE_MISMATCH"
    NOT_LEADER_OR_FOLLOWER = "NOT_LEADER_OR_FOLLOWER"
    SCANNER_EXPIRED = "SCANNER_EXPIRED"
    UNKNOWN_SCANNER_ID = "UNKNOWN_SCANNER_ID"
    INVALID_SCAN_REQUEST = "INVALID_SCAN_REQUEST"
    TOO_MANY_SCANNERS = "TOO_MANY_SCANNERS"
    STORAGE = "STORAGE"
    CORRUPT_DATA = "CORRUPT_DATA"
    DATA_DIR_IN_USE = "DATA_DIR_IN_USE"
    UNAVAILABLE = "UNAVAILABLE"
    UNSUPPORTED_VERSION = "UNSUPPORTED_VERSION"
    UNKNOWN = "UNKNOWN"


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
    ErrorCode.STORAGE: "INTERNAL",
    ErrorCode.CORRUPT_DATA: "DATA_LOSS",
    ErrorCode.DATA_DIR_IN_USE: "FAILED_PRECONDITION",
    ErrorCode.UNAVAILABLE: "UNAVAILABLE",
    ErrorCode.UNSUPPORTED_VERSION: "UNIMPLEMENTED",
    ErrorCode.UNKNOWN: "INTERNAL",
}


class FlussTieringError(Exception):
    """An error that says what was wrong, what was expected and what to do.

    Attributes:
        code: what kind of error it is.
        message: for people, without a traceback and with secrets masked.
    """

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    def __reduce__(self) -> tuple[type[FlussTieringError], tuple[ErrorCode, str]]:
        """Survives the pickling between Spark's workers and the driver."""
        return FlussTieringError, (self.code, self.message)
