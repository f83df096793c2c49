"""Arguments that no request can hold, told as every other wrong argument is."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from math import inf
from reprlib import Repr
from typing import Final, ParamSpec, TypeVar

from fluss_tiering.api.v1 import common_pb2
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.wire.tables import path_to_pb

ArgumentsT = ParamSpec("ArgumentsT")
RequestT = TypeVar("RequestT")

_MAX_LIMIT: Final = 2**63 - 1
"""The largest number of the message's field, of 64 bits."""
_SHORT: Final = Repr()
_SHORT.maxother = _SHORT.maxstring = _SHORT.maxlong = 60


def checked_arguments(build: Callable[ArgumentsT, RequestT]) -> Callable[ArgumentsT, RequestT]:
    """Let a function that builds a request raise INVALID_REQUEST if a value has a wrong type or is out of range.

    The messages of protobuf say neither which argument was wrong nor to which call it belonged.
    """
    signature = inspect.signature(build)

    @wraps(build)
    def checked(*args: ArgumentsT.args, **kwargs: ArgumentsT.kwargs) -> RequestT:
        try:
            return build(*args, **kwargs)
        except (TypeError, ValueError, AttributeError) as error:
            given = signature.bind(*args, **kwargs).arguments
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"the arguments of {build.__name__} do not fit into a request ({error}): got "
                + ", ".join(f"{name}={_SHORT.repr(value)}" for name, value in given.items())
                + "; the documentation of the method has the type of each argument",
            ) from error

    return checked


def several(values: Iterable[object]) -> None:
    """Check that a caller gave a list or another collection where several things are asked for.

    Raises:
        FlussTieringError: INVALID_REQUEST if it is none, or a text, which would be taken for a list of letters.
    """
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"{_SHORT.repr(values)} is no list: put what you ask for into a list, even a single one",
        )


def paths_to_pb(paths: Iterable[TablePath]) -> list[common_pb2.PbTablePath]:
    """Return the messages of the paths of several tables.

    Raises:
        FlussTieringError: INVALID_REQUEST if it is no list; INVALID_TABLE if a text in it is no path.
    """
    several(paths)
    return [path_to_pb(path) for path in paths]


def seconds(what: str, value: float) -> float:
    """Return a length of time in seconds, as given.

    Raises:
        FlussTieringError: INVALID_REQUEST if it is no number above 0. gRPC would take it for a time that has passed.
    """
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < inf:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST, f"{what} {_SHORT.repr(value)}: expected a number of seconds above 0"
        )
    return value


def row_limit(limit: int | None) -> None:
    """Check the number of rows after which a scan ends, or None for all rows.

    Raises:
        FlussTieringError: INVALID_REQUEST if it is no whole number, or out of range.
    """
    if limit is not None:
        whole_number("a scan with limit", limit, 1, _MAX_LIMIT)


def whole_number(what: str, value: object, least: int, most: int) -> None:
    """Check a number that the client itself uses.

    Args:
        what: What the number is, for the message.
        value: The number.
        least: The lowest number that is right.
        most: The highest number that is right.

    Raises:
        FlussTieringError: INVALID_REQUEST if it is no whole number, or out of range.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST, f"{what} {_SHORT.repr(value)}: expected a number from {least} to {most}"
        )
