"""Checks that all conversions from messages share."""

from __future__ import annotations

from collections.abc import Sized
from typing import Final, TypeAlias, TypeVar

from google.protobuf.message import Message

from fluss_tiering.api.v1 import kv_snapshot_leases_pb2, lake_tiering_pb2
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

TokenMessage: TypeAlias = (
    kv_snapshot_leases_pb2.ReleaseKvSnapshotLeaseRequest
    | kv_snapshot_leases_pb2.DropKvSnapshotLeaseRequest
    | lake_tiering_pb2.LakeTieringHeartbeatRequest
    | lake_tiering_pb2.ClaimTablesRequest
    | lake_tiering_pb2.CancelTieringRequest
    | lake_tiering_pb2.GetLeaseOutcomeRequest
)

MessageT = TypeVar("MessageT", bound=Message)
SizedT = TypeVar("SizedT", bound=Sized)

MAX_ENTRIES: Final = 10_000
"""The number of tables, buckets or leases that one request may name."""

MAX_COLUMNS: Final = 5_000
"""The number of columns, and of fields of their types, that a table may be created with."""

MAX_BUCKET_ENTRIES: Final = 1 << 18
"""The number of buckets of all tables whose offsets one request may name."""

MAX_ID_CHARS: Final = 512
"""The number of characters that a lease id or a driver's name may have."""


def required(message: Message, field: str, value: MessageT) -> MessageT:
    """Return the value of a message's field.

    Raises:
        FlussTieringError: INVALID_REQUEST if the field is not set.
    """
    if not message.HasField(field):
        raise FlussTieringError(ErrorCode.INVALID_REQUEST, f"{_name(message)}.{field} is missing: it must be set")
    return value


def not_negative(message: Message, field: str, value: int) -> int:
    """Return the value of a message's field.

    Raises:
        FlussTieringError: INVALID_REQUEST if the value is below 0.
    """
    if value < 0:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST, f"{_name(message)}.{field} is {value}: expected a number of 0 or more"
        )
    return value


def bounded(message: Message, field: str, values: SizedT) -> SizedT:
    """Return the values of a message's field.

    Raises:
        FlussTieringError: INVALID_REQUEST if there are more than `MAX_ENTRIES` values.
    """
    if len(values) > MAX_ENTRIES:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"{_name(message)}.{field} has {len(values)} entries: expected at most {MAX_ENTRIES} in one request",
        )
    return values


def bounded_total(message: Message, field: str, total: int, limit: int = MAX_ENTRIES) -> None:
    """Check the number of entries that the parts of a message's field have together.

    Raises:
        FlussTieringError: INVALID_REQUEST if there are more than the limit.
    """
    if total > limit:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"{_name(message)}.{field} has {total} entries in all: expected at most {limit} in one request",
        )


def identifier(message: Message, field: str, value: str) -> str:
    """Return the value of a message's field.

    Raises:
        FlussTieringError: INVALID_REQUEST if the value is empty, longer than `MAX_ID_CHARS` or not printable.
    """
    if not value or len(value) > MAX_ID_CHARS or not value.isprintable():
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"{_name(message)}.{field} is {value[:80]!r}: expected 1 to {MAX_ID_CHARS} printable characters",
        )
    return value


def optional_token(message: TokenMessage) -> int | None:
    """Return the attempt token of a request; None if the caller has none.

    Raises:
        FlussTieringError: INVALID_REQUEST if the token is below 1.
    """
    if not message.HasField("attempt_token"):
        return None
    if message.attempt_token < 1:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"{_name(message)}.attempt_token is {message.attempt_token}: expected a token that an acquire returned",
        )
    return message.attempt_token


def _name(message: Message) -> str:
    return message.DESCRIPTOR.name
