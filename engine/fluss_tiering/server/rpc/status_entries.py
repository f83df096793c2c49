"""Statuses as serialized messages, kept from one answer to the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fluss_tiering.model.tiering import TieringStatus
from fluss_tiering.wire import tiering as wire

_KEPT_BESIDES: Final = 10_000
"""The number of unused entries that may be kept, in addition to as many as the last answer used."""
_MANY: Final = 1000
"""An answer with this many statuses is kept as a whole."""


class StatusEntries:
    """Serialized statuses, kept while the status of the table stays the same. It is used on the event loop only.

    Many clients ask for all statuses, and few statuses change between two answers.
    """

    def __init__(self) -> None:
        self._kept: dict[int, tuple[TieringStatus, bytes]] = {}
        self._last: tuple[Sequence[TieringStatus], bytes] = ((), b"")

    def of(self, statuses: Sequence[TieringStatus]) -> bytes:
        """Return a serialized message that has the statuses in field 1 and nothing else.

        Args:
            statuses: The statuses. The caller does not change the sequence later.
        """
        if statuses is self._last[0]:
            return self._last[1]
        entries = []
        for status in statuses:
            kept = self._kept.get(status.table_id)
            if kept is None or kept[0] is not status:
                kept = (status, wire.status_to_bytes(status))
                self._kept[status.table_id] = kept
            entries.append(kept[1])
        if len(self._kept) > 2 * len(entries) + _KEPT_BESIDES:
            self._kept = {status.table_id: self._kept[status.table_id] for status in statuses}
        answer = b"".join(entries)
        if len(entries) >= _MANY:
            self._last = (statuses, answer)
        return answer
