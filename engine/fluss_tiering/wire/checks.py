"""Checks that every conversion off the wire shares."""

from __future__ import annotations

from collections.abc import Sized
from typing import Final, TypeVar

from google.protobuf.message import Message

from fluss_tiering.model.errors import ErrorCode, FlussTieringError

MessageT = TypeVar("MessageT", bound=Message)
SizedT = TypeVar("SizedT", bound=Sized)

MAX_ENTRIES: Final = 10_000
"""How many tables, buckets or leases one request may name."""

MAX_ID_CHARS: Final = 512
"""How long a lease id or a driver's name may be."""


def required(message: Message, field: str, value: MessageT) -> MessageT:
    """`value`, which is `message`'s field of that name; INVALID_REQUEST when it was not set."""
    if not message.HasField(field):
        raise FlussTieringError(ErrorCode.INVALID_REQUEST, f"{_name(message)}.{field} is missing: it must be set")
    return value


def not_negative(message: Message, field: str, value: int) -> int:
    """`value`; INVALID_REQUEST when it is below 0."""
    if value < 0:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST, f"{_name(message)}.{field} is {value}: expected a number of 0 or more"
        )
    return value


def bounded(message: Message, field: str, values: SizedT) -> SizedT:
    """`values`; INVALID_REQUEST when there are more than `MAX_ENTRIES`."""
    if len(values) > MAX_ENTRIES:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"{_name(message)}.{field} has {len(values)} entries: expected at most {MAX_ENTRIES} in one request",
        )
    return values


def identifier(message: Message, field: str, value: str) -> str:
    """`value`; INVALID_REQUEST when it is empty, longer than `MAX_ID_CHARS` or not printable."""
    if not value or len(value) > MAX_ID_CHARS or not value.isprintable():
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"{_name(message)}.{field} is {value[:80]!r}: expected 1 to {MAX_ID_CHARS} printable characters",
        )
    return value


def _name(message: Message) -> str:
    return message.DESCRIPTOR.name
