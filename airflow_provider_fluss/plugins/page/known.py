"""What the tiering servers say, kept for two seconds: many people may look at one page of a server with many tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from airflow.providers.common.compat.sdk import AirflowException

from airflow_provider_fluss.hooks.fluss import FlussHook
from fluss_tiering.model.errors import SERVER_AWAY, ErrorCode, FlussTieringError
from fluss_tiering.model.tiering import KvSnapshotLease, TieringStatus

if TYPE_CHECKING:
    from fluss_tiering.client import TieringClient

TIMEOUT_SECONDS: Final = 5.0
"""A page waits for the tiering server for this long, and then says that it does not answer."""
_KEPT_SECONDS: Final = 2.0

T = TypeVar("T")


def ask(conn_id: str, question: Callable[[TieringClient], T]) -> T:
    """Ask the tiering server of a connection. Each call of the question may take five seconds.

    A server that did not answer is not asked again for two seconds, whatever the question is.

    Raises:
        FlussTieringError: INVALID_REQUEST if the connection is not usable; otherwise as the calls of the question.
    """
    OUTAGES.check(conn_id)
    try:
        client = FlussHook(conn_id, timeout=TIMEOUT_SECONDS).get_client()
    except (AirflowException, ValueError) as error:
        raise FlussTieringError(ErrorCode.INVALID_REQUEST, str(error)) from error
    with client:
        try:
            return question(client)
        except FlussTieringError as error:
            OUTAGES.note(conn_id, error)
            raise


class Outages:
    """Keeps for two seconds that the server of a connection did not answer.

    Args:
        monotonic: A monotonic clock in seconds.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._errors: dict[str, tuple[float, FlussTieringError]] = {}

    def note(self, conn_id: str, error: FlussTieringError) -> None:
        """Keep the error if it says that the server did not answer."""
        if error.code in SERVER_AWAY:
            self._errors[conn_id] = (self._monotonic() + _KEPT_SECONDS, error)

    def check(self, conn_id: str) -> None:
        """Raise the error of the last two seconds.

        Raises:
            FlussTieringError: The server did not answer within the last two seconds.
        """
        expires, error = self._errors.get(conn_id, (0.0, None))
        if error is not None and self._monotonic() < expires:
            raise FlussTieringError(error.code, error.message)

    def forget(self, conn_id: str) -> None:
        """Ask the server anew at the next call, because a person wants something done there."""
        self._errors.pop(conn_id, None)


OUTAGES: Final = Outages()
"""The servers that do not answer."""


@dataclass
class _Entry(Generic[T]):
    lock: Lock = field(default_factory=Lock)
    answer: T | FlussTieringError | None = None
    expires: float = 0.0


class Kept(Generic[T]):
    """Keeps the answer of each connection's server for two seconds. One thread asks, and others wait for its answer.

    An error is kept as well, so that the waits of many users for a server that is away do not add up.

    Args:
        load: Asks the server of a connection. It raises FlussTieringError.
        monotonic: A monotonic clock in seconds.
    """

    def __init__(self, load: Callable[[str], T], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._load = load
        self._monotonic = monotonic
        self._entries: dict[str, _Entry[T]] = {}

    def get(self, conn_id: str) -> T:
        """Return the answer of the server of this connection, at most two seconds old.

        Raises:
            FlussTieringError: What the server answered, or that it did not answer, within the last two seconds.
        """
        entry = self._entries.setdefault(conn_id, _Entry())
        with entry.lock:
            if entry.answer is None or self._monotonic() >= entry.expires:
                try:
                    entry.answer = self._load(conn_id)
                except FlussTieringError as error:
                    entry.answer = error
                entry.expires = self._monotonic() + _KEPT_SECONDS
            answer = entry.answer
        if isinstance(answer, FlussTieringError):
            raise FlussTieringError(answer.code, answer.message)
        return answer

    def forget(self, conn_id: str) -> None:
        """Ask the server anew at the next call, because something was changed there."""
        self._entries.pop(conn_id, None)


def _statuses(conn_id: str) -> Sequence[TieringStatus]:
    return ask(conn_id, lambda client: client.list_tiering_statuses())


def _leases(conn_id: str) -> Sequence[KvSnapshotLease]:
    return sorted(ask(conn_id, lambda client: client.list_leases()), key=lambda each: each.expiration_time)


STATUSES: Final = Kept(_statuses)
"""The statuses of all tables, for each connection."""
LEASES: Final = Kept(_leases)
"""The leases, those that expire first, for each connection."""
