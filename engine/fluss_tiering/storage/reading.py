"""What the readers of all storages share: waiting for a server, the sizes of KV snapshots, and the texts of damage."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import KvSnapshot, TableBucket, TableInfo
from fluss_tiering.storage.protocol import SplitReader

UNAVAILABLE_TIMEOUT_S: Final = 120.0
_FIRST_PAUSE_S: Final = 0.2
_MAX_PAUSE_S: Final = 5.0
_MEASURED_AT_ONCE: Final = 8
AWAY: Final = frozenset({ErrorCode.UNAVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER})
"""The errors of a server that may come back."""
OPENING_SCAN: Final = AWAY | {ErrorCode.TOO_MANY_SCANNERS}
"""The errors after which opening a scan may succeed later."""


class RetryBackoff:
    """Waits, with growing pauses, for a server that is away or throttles.

    The time limit begins anew whenever data arrive. Without this, one throttled split would fail its task, and a few
    of them would fail the round.

    Args:
        stopped: An event that ends a wait, set when nobody wants to read on.
        seconds: The time limit for failures that follow each other.
        passing: The errors that are waited for.
    """

    def __init__(
        self,
        stopped: threading.Event | None = None,
        seconds: float = UNAVAILABLE_TIMEOUT_S,
        passing: frozenset[ErrorCode] = AWAY,
    ) -> None:
        self._stopped = stopped or threading.Event()
        self._seconds = seconds
        self._passing = passing
        self._failures = 0
        self._give_up_at = 0.0

    def restore(self) -> None:
        """Begin the time limit anew, since data have arrived."""
        self._failures = 0

    def wait_after(self, error: FlussTieringError) -> None:
        """Sleep before the next try. Raise the error if it cannot pass, or if the failures have lasted too long."""
        if self._failures == 0:
            self._give_up_at = time.monotonic() + self._seconds
        if error.code not in self._passing or time.monotonic() >= self._give_up_at:
            raise error
        pause = min(_MAX_PAUSE_S, _FIRST_PAUSE_S * 2**self._failures)
        self._failures += 1
        # A random part of the pause, from half of it to all of it, spreads the callers out.
        if self._stopped.wait(random.uniform(pause / 2, pause)):  # noqa: S311
            raise error


@contextmanager
def rewording_corrupt_data(reword: Callable[[str], str]) -> Iterator[None]:
    """Replace the message of a CORRUPT_DATA error that the block raises.

    Decoders know only the position of the damage; their callers know the file or the bucket, and what to do about it.

    Args:
        reword: The function that makes the new message from the old one.
    """
    try:
        yield
    except FlussTieringError as error:
        if error.code is not ErrorCode.CORRUPT_DATA:
            raise
        raise FlussTieringError(error.code, reword(error.message)) from error


def measured(
    open_reader: Callable[[], SplitReader], table: TableInfo, snapshots: Mapping[TableBucket, KvSnapshot]
) -> dict[TableBucket, KvSnapshot]:
    """Return KV snapshots, each with its size and with the keys at which it may be split.

    The server does not know them of the snapshots of a Fluss cluster.

    Args:
        open_reader: Opens a reader. It is called only if a snapshot has to be measured.
        snapshots: The snapshots by bucket.

    Raises:
        FlussTieringError: KV_SNAPSHOT_NOT_EXIST if a snapshot is gone; CORRUPT_DATA if it cannot be decoded; STORAGE
            if its files cannot be read; UNAVAILABLE if the cluster cannot be reached.
    """
    if all(snapshot.row_count >= 0 for snapshot in snapshots.values()):
        return dict(snapshots)
    reader = open_reader()
    with ThreadPoolExecutor(_MEASURED_AT_ONCE, thread_name_prefix="fluss-tiering-measure") as threads:
        sized = threads.map(lambda snapshot: reader.measure_kv_snapshot(table, snapshot), snapshots.values())
        return dict(zip(snapshots, sized, strict=True))
