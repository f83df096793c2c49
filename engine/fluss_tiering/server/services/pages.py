"""Answers that are made of many parts: how many parts a client wants, and the parts joined."""

from __future__ import annotations

from typing import Any, Final, Protocol

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath

MAX_ANSWER_BYTES: Final = 32 << 20
"""The largest answer. A client would take more, but many of them would fill the server's memory."""
MAX_PAGE: Final = 1000
"""The largest page. A client that asks for a larger one gets this."""

Order = tuple[str | int, ...]


class PagedRequest(Protocol):
    """A request whose answer may come in pages."""

    @property
    def page_size(self) -> int:
        """The number of entries that the client wants in each answer; 0 for all of them at once."""
        ...


def page_size_of(request: PagedRequest) -> int:
    """Return the number of entries in an answer; 0 for all of them.

    Raises:
        FlussTieringError: INVALID_REQUEST if the client asks for a negative number.
    """
    if request.page_size < 0:
        name: Any = type(request).__name__
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"{name}.page_size is {request.page_size}: expected 1 to {MAX_PAGE}, or 0 for all",
        )
    return min(request.page_size, MAX_PAGE)


def token_of_path(path: TablePath) -> str:
    """Return a page token that orders tables as their paths do: NUL sorts before every character of a name."""
    return f"{path.database}\0{path.table}"


class Collected:
    """The serialized parts of one answer, which may be joined because each has entries of repeated fields only.

    Args:
        method: The name of the call, for messages.
    """

    def __init__(self, method: str) -> None:
        self._method = method
        self._parts: list[tuple[Order, bytes]] = []
        self._bytes = 0

    def add(self, order: Order, part: bytes) -> None:
        """Add a part.

        Args:
            order: Where the part belongs. Parts of the same order stay as they were added.
            part: A serialized message.

        Raises:
            FlussTieringError: LIMIT_EXCEEDED if the answer is larger than it may be.
        """
        self._bytes += len(part)
        if self._bytes > MAX_ANSWER_BYTES:
            raise FlussTieringError(
                ErrorCode.LIMIT_EXCEEDED,
                f"the answer to {self._method} is larger than {MAX_ANSWER_BYTES >> 20} MiB: ask for it in pages "
                "(page_size), or for fewer entries",
            )
        self._parts.append((order, part))

    def joined(self) -> bytes:
        """Return the answer."""
        return b"".join(part for _, part in sorted(self._parts, key=lambda each: each[0]))
