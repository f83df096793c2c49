"""The errors of a Fluss cluster: their names and numbers in Fluss, and the error codes that they become here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import IntEnum, unique
from typing import Final

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.storage.fluss.rpc.acls import MissingAcl


@unique
class FlussError(IntEnum):
    """`org.apache.fluss.rpc.protocol.Errors` of Fluss 1.0, of which 0.9.1 has those up to 63.

    An unknown number counts as UNKNOWN_SERVER_ERROR.
    """

    UNKNOWN_SERVER_ERROR = -1
    NETWORK_EXCEPTION = 1
    UNSUPPORTED_VERSION = 2
    CORRUPT_MESSAGE = 3
    DATABASE_NOT_EXIST = 4
    DATABASE_NOT_EMPTY = 5
    DATABASE_ALREADY_EXIST = 6
    TABLE_NOT_EXIST = 7
    TABLE_ALREADY_EXIST = 8
    SCHEMA_NOT_EXIST = 9
    LOG_STORAGE_EXCEPTION = 10
    KV_STORAGE_EXCEPTION = 11
    NOT_LEADER_OR_FOLLOWER = 12
    RECORD_TOO_LARGE_EXCEPTION = 13
    CORRUPT_RECORD_EXCEPTION = 14
    INVALID_TABLE_EXCEPTION = 15
    INVALID_DATABASE_EXCEPTION = 16
    INVALID_REPLICATION_FACTOR = 17
    INVALID_REQUIRED_ACKS = 18
    LOG_OFFSET_OUT_OF_RANGE_EXCEPTION = 19
    NON_PRIMARY_KEY_TABLE_EXCEPTION = 20
    UNKNOWN_TABLE_OR_BUCKET_EXCEPTION = 21
    INVALID_UPDATE_VERSION_EXCEPTION = 22
    INVALID_COORDINATOR_EXCEPTION = 23
    FENCED_LEADER_EPOCH_EXCEPTION = 24
    REQUEST_TIME_OUT = 25
    STORAGE_EXCEPTION = 26
    OPERATION_NOT_ATTEMPTED_EXCEPTION = 27
    NOT_ENOUGH_REPLICAS_AFTER_APPEND_EXCEPTION = 28
    NOT_ENOUGH_REPLICAS_EXCEPTION = 29
    SECURITY_TOKEN_EXCEPTION = 30
    OUT_OF_ORDER_SEQUENCE_EXCEPTION = 31
    DUPLICATE_SEQUENCE_EXCEPTION = 32
    UNKNOWN_WRITER_ID_EXCEPTION = 33
    INVALID_COLUMN_PROJECTION = 34
    INVALID_TARGET_COLUMN = 35
    PARTITION_NOT_EXISTS = 36
    TABLE_NOT_PARTITIONED_EXCEPTION = 37
    INVALID_TIMESTAMP_EXCEPTION = 38
    INVALID_CONFIG_EXCEPTION = 39
    LAKE_STORAGE_NOT_CONFIGURED_EXCEPTION = 40
    KV_SNAPSHOT_NOT_EXIST = 41
    PARTITION_ALREADY_EXISTS = 42
    PARTITION_SPEC_INVALID_EXCEPTION = 43
    LEADER_NOT_AVAILABLE_EXCEPTION = 44
    PARTITION_MAX_NUM_EXCEPTION = 45
    AUTHENTICATE_EXCEPTION = 46
    SECURITY_DISABLED_EXCEPTION = 47
    AUTHORIZATION_EXCEPTION = 48
    BUCKET_MAX_NUM_EXCEPTION = 49
    FENCED_TIERING_EPOCH_EXCEPTION = 50
    RETRIABLE_AUTHENTICATE_EXCEPTION = 51
    INVALID_SERVER_RACK_INFO_EXCEPTION = 52
    LAKE_SNAPSHOT_NOT_EXIST = 53
    LAKE_TABLE_ALREADY_EXIST = 54
    INELIGIBLE_REPLICA_EXCEPTION = 55
    INVALID_ALTER_TABLE_EXCEPTION = 56
    DELETION_DISABLED_EXCEPTION = 57
    SERVER_NOT_EXIST_EXCEPTION = 58
    SEVER_TAG_ALREADY_EXIST_EXCEPTION = 59
    SEVER_TAG_NOT_EXIST_EXCEPTION = 60
    REBALANCE_FAILURE_EXCEPTION = 61
    NO_REBALANCE_IN_PROGRESS_EXCEPTION = 62
    INVALID_PRODUCER_ID_EXCEPTION = 63
    CONFIG_EXCEPTION = 64
    NOT_COORDINATOR_LEADER_EXCEPTION = 65
    SCANNER_EXPIRED = 66
    UNKNOWN_SCANNER_ID = 67
    INVALID_SCAN_REQUEST = 68
    TOO_MANY_SCANNERS = 69
    DISK_WRITE_LOCKED = 70
    INSUFFICIENT_KV_LEADER_REPLICA_CAPACITY = 71
    STORAGE_BACKPRESSURE_EXCEPTION = 72
    HISTORICAL_PARTITION_THROTTLED = 73
    INVALID_BUCKET_ROUTING = 74

    @classmethod
    def of(cls, number: int) -> FlussError:
        """Return the error that has this number."""
        return cls(number) if number in _NUMBERS else cls.UNKNOWN_SERVER_ERROR


_NUMBERS: Final = frozenset(FlussError)

STALE_METADATA: Final = frozenset(
    {
        FlussError.NOT_LEADER_OR_FOLLOWER,
        FlussError.LEADER_NOT_AVAILABLE_EXCEPTION,
        FlussError.UNKNOWN_TABLE_OR_BUCKET_EXCEPTION,
        FlussError.FENCED_LEADER_EPOCH_EXCEPTION,
        FlussError.NOT_COORDINATOR_LEADER_EXCEPTION,
    }
)
"""The errors after which the request went to the wrong server and did nothing there."""

TRANSIENT: Final = STALE_METADATA | {
    FlussError.NETWORK_EXCEPTION,
    FlussError.REQUEST_TIME_OUT,
    FlussError.NOT_ENOUGH_REPLICAS_EXCEPTION,
    FlussError.RETRIABLE_AUTHENTICATE_EXCEPTION,
    FlussError.HISTORICAL_PARTITION_THROTTLED,
}
"""The errors that may be gone in a moment."""

OUTCOME_UNKNOWN: Final = frozenset({FlussError.NETWORK_EXCEPTION, FlussError.REQUEST_TIME_OUT})
"""The errors after which it is not known whether the request did its work."""

_NOT_READY: Final = "not initialized yet"
"""A part of the text of UNKNOWN_SERVER_ERROR from a coordinator that is starting."""

_CAUSE: Final = re.compile(r"Caused by: org\.apache\.fluss\.exception\.(\w+): *([^\n]*)")
_CAUSES: Final = {
    "DatabaseNotExistException": FlussError.DATABASE_NOT_EXIST,
    "KvSnapshotNotExistException": FlussError.KV_SNAPSHOT_NOT_EXIST,
    "LakeTableSnapshotNotExistException": FlussError.LAKE_SNAPSHOT_NOT_EXIST,
    "PartitionNotExistException": FlussError.PARTITION_NOT_EXISTS,
    "TableNotExistException": FlussError.TABLE_NOT_EXIST,
}
"""The exceptions that Fluss may wrap in others, so that only its stack trace names them."""

_ADVICE: Final = {
    FlussError.AUTHORIZATION_EXCEPTION: "; give the user of the cluster this right",
    FlussError.AUTHENTICATE_EXCEPTION: "; check whether this listener demands SASL/PLAIN, and user and password",
    FlussError.DISK_WRITE_LOCKED: "; free space on the disk of that tablet server, or raise its "
    "server.data-disk.write-limit-ratio",
    FlussError.LAKE_TABLE_ALREADY_EXIST: "; do not drop the lake table, which holds what was tiered before: "
    "docs/how-to/connect-a-cluster.md says how to switch tiering on again",
    FlussError.INVALID_BUCKET_ROUTING: "; the number of buckets was changed: try again what was not acknowledged",
    FlussError.STORAGE_BACKPRESSURE_EXCEPTION: "; write less at once, or try again later",
}

_CODES: Final[Mapping[FlussError, ErrorCode]] = {
    FlussError.DATABASE_NOT_EXIST: ErrorCode.DATABASE_NOT_EXIST,
    FlussError.TABLE_NOT_EXIST: ErrorCode.TABLE_NOT_EXIST,
    FlussError.TABLE_ALREADY_EXIST: ErrorCode.TABLE_ALREADY_EXIST,
    FlussError.INVALID_TABLE_EXCEPTION: ErrorCode.INVALID_TABLE,
    FlussError.INVALID_CONFIG_EXCEPTION: ErrorCode.INVALID_TABLE,
    FlussError.INVALID_ALTER_TABLE_EXCEPTION: ErrorCode.INVALID_TABLE,
    FlussError.LAKE_TABLE_ALREADY_EXIST: ErrorCode.LAKE_TABLE_MISMATCH,
    FlussError.UNSUPPORTED_VERSION: ErrorCode.UNSUPPORTED_VERSION,
    FlussError.AUTHORIZATION_EXCEPTION: ErrorCode.AUTHORIZATION,
    FlussError.CORRUPT_MESSAGE: ErrorCode.CORRUPT_DATA,
    FlussError.CORRUPT_RECORD_EXCEPTION: ErrorCode.CORRUPT_DATA,
    FlussError.LOG_STORAGE_EXCEPTION: ErrorCode.STORAGE,
    FlussError.KV_STORAGE_EXCEPTION: ErrorCode.STORAGE,
    FlussError.STORAGE_EXCEPTION: ErrorCode.STORAGE,
    FlussError.LOG_OFFSET_OUT_OF_RANGE_EXCEPTION: ErrorCode.LOG_OFFSET_OUT_OF_RANGE,
    FlussError.NON_PRIMARY_KEY_TABLE_EXCEPTION: ErrorCode.TABLE_WITHOUT_PRIMARY_KEY,
    FlussError.PARTITION_NOT_EXISTS: ErrorCode.PARTITION_NOT_EXIST,
    FlussError.INVALID_COORDINATOR_EXCEPTION: ErrorCode.INVALID_COORDINATOR,
    FlussError.FENCED_TIERING_EPOCH_EXCEPTION: ErrorCode.FENCED_TIERING_EPOCH,
    FlussError.KV_SNAPSHOT_NOT_EXIST: ErrorCode.KV_SNAPSHOT_NOT_EXIST,
    FlussError.LAKE_SNAPSHOT_NOT_EXIST: ErrorCode.LAKE_SNAPSHOT_NOT_EXIST,
    FlussError.UNKNOWN_SERVER_ERROR: ErrorCode.UNKNOWN,
    FlussError.SCANNER_EXPIRED: ErrorCode.SCANNER_EXPIRED,
    FlussError.UNKNOWN_SCANNER_ID: ErrorCode.UNKNOWN_SCANNER_ID,
    FlussError.INVALID_SCAN_REQUEST: ErrorCode.INVALID_SCAN_REQUEST,
    FlussError.TOO_MANY_SCANNERS: ErrorCode.TOO_MANY_SCANNERS,
    FlussError.INVALID_BUCKET_ROUTING: ErrorCode.UNAVAILABLE,
    FlussError.DISK_WRITE_LOCKED: ErrorCode.LIMIT_EXCEEDED,
    FlussError.INSUFFICIENT_KV_LEADER_REPLICA_CAPACITY: ErrorCode.LIMIT_EXCEEDED,
    **dict.fromkeys(STALE_METADATA, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    **dict.fromkeys(TRANSIENT - STALE_METADATA, ErrorCode.UNAVAILABLE),
    # Writers wait for longer than a call that is sent again (`storage.fluss.writing.backpressure`).
    FlussError.STORAGE_BACKPRESSURE_EXCEPTION: ErrorCode.UNAVAILABLE,
    # A coordinator that stands by, while the cluster has no leader that is known.
    FlussError.NOT_COORDINATOR_LEADER_EXCEPTION: ErrorCode.UNAVAILABLE,
}


class FlussServerError(FlussTieringError):
    """An error that a Fluss server sent instead of a result.

    Attributes:
        fluss_error: Fluss's error.
        server_message: Fluss's own message.
        missing_acl: The ACL without which Fluss refused the call; None for other errors, and if Fluss does not say it.
    """

    def __init__(
        self, fluss_error: FlussError, server_message: str, what: str = "", missing_acl: MissingAcl | None = None
    ) -> None:
        if missing_acl is None and fluss_error is FlussError.AUTHORIZATION_EXCEPTION:
            missing_acl = MissingAcl.read(server_message)
        says = f"Fluss says {fluss_error.name}: {server_message}{_ADVICE.get(fluss_error, '')}"
        text = says if missing_acl is None else f"{missing_acl.text()} ({fluss_error.name})"
        super().__init__(_CODES.get(fluss_error, ErrorCode.INVALID_REQUEST), f"{what}: {text}" if what else text)
        self.fluss_error = fluss_error
        self.server_message = server_message
        self.missing_acl = missing_acl
        self._what = what

    @classmethod
    def of(cls, number: int, text: str, what: str = "") -> FlussServerError:
        """Return the error for a number and a text.

        The text may end in a stack trace, whose last cause is taken if the number says nothing.
        """
        fluss_error = FlussError.of(number)
        causes = _CAUSE.findall(text)
        if fluss_error is FlussError.UNKNOWN_SERVER_ERROR and causes and causes[-1][0] in _CAUSES:
            return cls(_CAUSES[causes[-1][0]], causes[-1][1], what)
        return cls(fluss_error, text.partition("\n\tat ")[0].strip() or "(no message)", what)

    def of_user(self, user: str | None) -> FlussServerError:
        """Return the error with this user in the missing ACL, if Fluss does not name who was refused."""
        if self.missing_acl is None or self.missing_acl.principal or user is None:
            return self
        missing = self.missing_acl.of_user(user)
        return FlussServerError(self.fluss_error, self.server_message, self._what, missing)

    def __reduce__(self) -> tuple[type[FlussServerError], tuple[FlussError, str, str, MissingAcl | None]]:
        """Allow pickling, since Spark's workers send errors to the driver."""
        return FlussServerError, (self.fluss_error, self.server_message, self._what, self.missing_acl)

    @property
    def transient(self) -> bool:
        """Whether the error may be gone in a moment."""
        return self.fluss_error in TRANSIENT or self.not_ready

    @property
    def not_ready(self) -> bool:
        """Whether the coordinator is starting or stands by, so that it has done nothing."""
        return self.fluss_error is FlussError.NOT_COORDINATOR_LEADER_EXCEPTION or (
            self.fluss_error is FlussError.UNKNOWN_SERVER_ERROR and _NOT_READY in self.server_message
        )

    @property
    def outcome_unknown(self) -> bool:
        """Whether the request may have done its work although it failed."""
        return self.fluss_error in OUTCOME_UNKNOWN


class UnknownBucketError(FlussTieringError):
    """The error (INVALID_REQUEST) for a bucket that the asked server does not know, although it knows the table.

    Servers learn of a new partition only after a moment.
    """

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, message)


class FlussConnectionError(FlussTieringError):
    """The error (UNAVAILABLE) for a server that cannot be reached, hung up or fell silent.

    Attributes:
        outcome_unknown: Whether a request had been sent, so that its work may have been done.
    """

    def __init__(self, message: str, *, outcome_unknown: bool = False) -> None:
        super().__init__(ErrorCode.UNAVAILABLE, message)
        self.outcome_unknown = outcome_unknown


def raise_for(error_code: int, error_message: str, what: str) -> None:
    """Raise the error that an answer names for one of its parts, unless its number is 0.

    Args:
        error_code: The number of Fluss's error.
        error_message: Fluss's message.
        what: The part, for example a bucket.

    Raises:
        FlussServerError: The number is not 0.
    """
    if error_code != 0:
        raise FlussServerError.of(error_code, error_message, what)
