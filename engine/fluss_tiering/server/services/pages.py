"""Answers that are made of many parts: how many parts a client wants, and the parts joined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import TieringStatus
from fluss_tiering.wire.tiering import status_to_bytes

MAX_ANSWER_BYTES: Final = 32 << 20
"""The largest answer. A client would take more, but many of them would fill the server's memory."""
MAX_PAGE: Final = 1000
"""The largest page. A client that asks for a larger one gets this."""

_KEPT_BESIDES: Final = 10_000
"""The number of unused entries that may be kept, in addition to as many as the last answer used."""

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


class StatusEntries:
    """Serialized statuses, kept while the status of the table stays the same. It is used on the event loop only.

    Many clients ask for all statuses, and few statuses change between two answers.
    """

    def __init__(self) -> None:
        self._kept: dict[int, tuple[TieringStatus, bytes]] = {}

    def of(self, statuses: Sequence[TieringStatus]) -> bytes:
        """Return a serialized message that has the statuses in field 1 and nothing else."""
        entries = []
        for status in statuses:
            kept = self._kept.get(status.table_id)
            if kept is None or kept[0] is not status:
                kept = (status, status_to_bytes(status))
                self._kept[status.table_id] = kept
            entries.append(kept[1])
        if len(self._kept) > 2 * len(entries) + _KEPT_BESIDES:
            self._kept = {status.table_id: self._kept[status.table_id] for status in statuses}
        return b"".join(entries)
