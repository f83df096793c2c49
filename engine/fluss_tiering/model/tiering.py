"""Tiering states, statuses and rounds (seeds S1-S28)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import TablePath


class TieringState(StrEnum):
    """The states of a table's tiering, as Fluss names them."""

    NEW = "New"
    INITIALIZED = "Initialized"
    SCHEDULED = "Scheduled"
    PENDING = "Pending"
    TIERING = "Tiering"
    TIERED = "Tiered"
    FAILED = "Failed"


TRANSITIONS: Final[dict[TieringState | None, frozenset[TieringState]]] = {
    None: frozenset({TieringState.NEW, TieringState.INITIALIZED}),
    TieringState.NEW: frozenset({TieringState.SCHEDULED}),
    TieringState.INITIALIZED: frozenset({TieringState.SCHEDULED}),
    TieringState.SCHEDULED: frozenset({TieringState.PENDING}),
    TieringState.PENDING: frozenset({TieringState.TIERING}),
    TieringState.TIERING: frozenset({TieringState.TIERED, TieringState.FAILED}),
    TieringState.TIERED: frozenset({TieringState.SCHEDULED, TieringState.PENDING}),
    TieringState.FAILED: frozenset({TieringState.PENDING}),
}
"""S1: from -> to; every other transition is refused."""

OUTCOMES: Final = frozenset({TieringState.TIERED, TieringState.FAILED})
"""The states in which a round ends."""

MAX_SENT_ERROR_CHARS: Final = 2048
MAX_KEPT_ERROR_CHARS: Final = 4096
"""S11: the sender cuts to the first, the server to the second."""


@dataclass(frozen=True, slots=True)
class TieringStats:
    """What a round wrote.

    Attributes:
        lake_snapshot_id: None for an empty round, which commits nothing.
        lake_file_size: bytes of all files of the lake table after the round, where its driver told; for metrics.
        lake_record_count: records of all data files of the lake table after the round, likewise.
    """

    rows: int = 0
    bytes: int = 0
    files: int = 0
    lake_snapshot_id: int | None = None
    # Not compared: they say what the lake table is, not what the round did.
    lake_file_size: int | None = field(default=None, compare=False)
    lake_record_count: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class TieringStatus:
    """A table's tiering as it stands; times in ms since the epoch."""

    table_id: int
    path: TablePath
    state: TieringState
    state_since: int
    tiering_epoch: int
    last_tiered_time: int | None = None
    last_error: str | None = None
    last_error_time: int | None = None
    consecutive_failures: int = 0
    next_retry_time: int | None = None

    @property
    def parked(self) -> bool:
        """Failed so many times in a row that it is not tried again until it is resumed or redefined (S19)."""
        return self.state is TieringState.FAILED and self.next_retry_time is None


@dataclass(frozen=True, slots=True)
class StatusChanges:
    """What a watcher of statuses is told: first all that it watches, then what changed since.

    Attributes:
        removed: tables that were dropped, or are not tiered any more.
    """

    statuses: tuple[TieringStatus, ...] = ()
    removed: tuple[TablePath, ...] = ()


@dataclass(frozen=True, slots=True)
class TieringRound:
    """One round of a table: running (state TIERING) or ended with its recorded outcome (S23, S25)."""

    table_id: int
    path: TablePath
    tiering_epoch: int
    state: TieringState
    lease_id: str
    attempt_token: int | None
    driver: str
    start_time: int
    end_time: int | None = None
    error: str | None = None
    stats: TieringStats | None = None
    force_finished: bool = False


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to run a round: names its epoch, which fences it."""

    table_id: int
    path: TablePath
    tiering_epoch: int


@dataclass(frozen=True, slots=True)
class LeaseOutcome:
    """What waiters on a lease see: the newest round of each table under it."""

    rounds: tuple[TieringRound, ...]
    cancelled_reason: str | None = None
    newest_attempt_token: int | None = None


@dataclass(frozen=True, slots=True)
class HeartbeatEntry:
    """What a heartbeat says of one table: that its round still runs, finished (with stats) or failed (with a reason).

    Attributes:
        coordinator_epoch: of the server that handed the round out; another server's round is refused (S5).
    """

    table_id: int
    tiering_epoch: int
    error_message: str | None = None
    stats: TieringStats | None = None
    coordinator_epoch: int = 0


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """The answer to a heartbeat: the table handed out, and by table id what was refused (S5)."""

    coordinator_epoch: int
    claim: Claim | None = None
    tiering_errors: Mapping[int, FlussTieringError] = field(default_factory=dict)
    finished_errors: Mapping[int, FlussTieringError] = field(default_factory=dict)
    failed_errors: Mapping[int, FlussTieringError] = field(default_factory=dict)
