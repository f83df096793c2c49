"""Tiering states, statuses and rounds, and the leases of KV snapshots that rounds read from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Self

from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import TableBucket, TablePath

DEFAULT_LEASE_DURATION_MS: Final = 6 * 60 * 60 * 1000
"""How long a lease lasts, in milliseconds. A round renews its lease whenever a third of this time has passed."""
DRIVER_LEASE_DURATION_MS: Final = 30 * 60 * 1000
"""How long a lease of a driver's own lasts. It is shorter, as nobody waits before the driver renews it."""
ROUND_FORMAT: Final = 1
"""The format of this version's rounds: what they write into lake tables, and how they read what other rounds wrote.

It grows if drivers of two versions must not tier one table in turn. A server refuses drivers of another format.
"""
MAX_SENT_ERROR_CHARS: Final = 2048
"""A driver cuts an error message to this many characters before it sends it."""
MAX_KEPT_ERROR_CHARS: Final = 4096
"""The server cuts an error message to this many characters before it keeps it."""
MAP_INDEX_VARIABLE: Final = "AIRFLOW_CTX_MAP_INDEX"
"""Airflow does not set this variable; the operators of the provider do."""
_DAG_ID, _RUN_ID, _TASK_ID = "AIRFLOW_CTX_DAG_ID", "AIRFLOW_CTX_DAG_RUN_ID", "AIRFLOW_CTX_TASK_ID"
_TRY_NUMBER: Final = "AIRFLOW_CTX_TRY_NUMBER"
TASK_VARIABLES: Final = (_DAG_ID, _RUN_ID, _TASK_ID, MAP_INDEX_VARIABLE, _TRY_NUMBER)
"""The variables of the environment that name the task in Airflow which a process belongs to."""
MAX_ORIGIN_CHARS: Final = 512
"""The number of characters that a text of an origin may have."""
_WEB_ADDRESS: Final = re.compile(r"https?://[^/?#@\\]+(?:[/?#]|\Z)")
"""An address of the web up to the end of its host and port. What stands before an @ there is a login."""


@dataclass(frozen=True, slots=True)
class KvSnapshotLease:
    """A lease and the KV snapshots that it pins. Times are in milliseconds since the epoch.

    Attributes:
        acquired_time: When the lease was first acquired.
        expiration_time: When the lease expires unless it is renewed.
        attempt_token: The token of the newest attempt under this id.
        snapshots: The pinned snapshots: bucket -> snapshot id.
    """

    lease_id: str
    acquired_time: int
    expiration_time: int
    attempt_token: int
    snapshots: Mapping[TableBucket, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AcquiredLease:
    """The answer to an acquire.

    Attributes:
        attempt_token: The token of the attempt that begins with this acquire.
        expiration_time: When the lease expires, in milliseconds since the epoch; 0 if nothing was pinned.
        unavailable_snapshots: The requested snapshots that do not exist: bucket -> snapshot id.
    """

    lease_id: str
    attempt_token: int
    expiration_time: int
    unavailable_snapshots: Mapping[TableBucket, int] = field(default_factory=dict)


class LeaseDrop(StrEnum):
    """The answer to dropping a lease. UNKNOWN (no such lease) and STALE (a stale attempt) changed nothing."""

    DROPPED = "dropped"
    UNKNOWN = "unknown"
    STALE = "stale"


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
"""The states that may follow each state; every other transition is refused. None stands for a table that is new."""

OUTCOMES: Final = frozenset({TieringState.TIERED, TieringState.FAILED})
"""The states in which a round ends."""


MAX_PARTITIONS: Final = 1000
"""How many partitions of a round are named at most."""


@dataclass(frozen=True, slots=True)
class TieringStats:
    """What a round wrote, and how large the lake table is after it.

    Attributes:
        rows: The number of changes that the round took into the lake: rows that were appended, inserted or updated,
            and rows that were deleted. Each of several changes of one key counts, although only the last one is
            written.
        bytes: The size of the files that the round wrote, in bytes.
        files: The number of files that the round wrote.
        lake_snapshot_id: The lake snapshot that the round committed; None for an empty round, which commits nothing.
        lake_file_size: The size of all files of the lake table after the round, in bytes; None if the driver did not
            report it.
        lake_record_count: The number of records in all data files of the lake table after the round; None if the
            driver did not report it.
        partitions: The names of the partitions whose rows changed; none of a table without partitions, or if there are
            more than `MAX_PARTITIONS`.
    """

    rows: int = 0
    bytes: int = 0
    files: int = 0
    lake_snapshot_id: int | None = None
    # These two are not compared, because they describe the lake table and not the round.
    lake_file_size: int | None = field(default=None, compare=False)
    lake_record_count: int | None = field(default=None, compare=False)
    partitions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TieringStatus:
    """The present status of a table's tiering. Times are in milliseconds since the epoch.

    Attributes:
        table_id: The table's id.
        path: The table's path.
        state: The table's state.
        state_since: When the table entered this state.
        tiering_epoch: The epoch of the newest round. It grows by one whenever the table becomes Pending, and so fences
            older rounds.
        last_tiered_time: When a round last succeeded; None if none did.
        last_error: Why the last round failed or was ended, or its commit was refused; None if the last round succeeded.
        last_error_time: When that happened; None if the last round succeeded.
        consecutive_failures: How many rounds in a row have failed.
        next_retry_time: When a Failed table is tried again; None for a parked table and in every other state.
        records_waiting: The number of log records that are not in the lake; None if the server does not know it. An
            update of a row of a primary-key table is two. With a Fluss cluster it is up to some seconds old.
        waiting_since: About when the oldest of these records was written; None if none waits or if it is not known. Of
            records from before the server's start it is the last success, or the table's creation.
        next_round_time: The earliest time at which the table becomes Pending by itself. If it is over, the table
            becomes Pending with its next record. None for a parked table, for one that is neither Scheduled nor Failed,
            and for a Scheduled one of a Fluss cluster, whose coordinator decides.
        freshness_ms: How far the lake table may fall behind, in milliseconds; None while no server is active.
        last_maintained_time: When the lake table was last maintained by a plan; None if that was not reported since the
            server started.
        maintenance_saved_files: How many data files and delete files maintenance has saved since the server started;
            None as above.
        maintenance_rewritten_bytes: The size of the data files that maintenance has rewritten since then, in bytes;
            None as above.
        maintenance_expired_snapshots: How many lake snapshots maintenance has removed since then; None as above.
        maintenance_deleted_files: How many files maintenance has deleted since then; None as above.
        switched_on_time: When the tiering of the table was switched on again after it had been off; None if that was
            not so since the server started. A Fluss cluster may have made another lake table then.
        failing_since: When the first of the `consecutive_failures` happened; None if there are none. Of a table that
            failed before its server kept this time, it is the time of a later failure.
        dropped_untiered_records: How many log records were dropped with their partitions before they were in the lake.
        dropped_untiered_time: When the server noticed the last of them; None if there are none.
        interruptions: How many rounds in a row were interrupted since a round last succeeded or failed by itself,
            without those that were cancelled. Only the server knows it; it is 0 for clients.
    """

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
    # These are not compared, because they describe the table's log and its options. They change while the status stays.
    records_waiting: int | None = field(default=None, compare=False)
    waiting_since: int | None = field(default=None, compare=False)
    next_round_time: int | None = field(default=None, compare=False)
    freshness_ms: int | None = field(default=None, compare=False)
    last_maintained_time: int | None = field(default=None, compare=False)
    maintenance_saved_files: int | None = field(default=None, compare=False)
    maintenance_rewritten_bytes: int | None = field(default=None, compare=False)
    maintenance_expired_snapshots: int | None = field(default=None, compare=False)
    maintenance_deleted_files: int | None = field(default=None, compare=False)
    switched_on_time: int | None = field(default=None, compare=False)
    failing_since: int | None = None
    dropped_untiered_records: int = 0
    dropped_untiered_time: int | None = None
    interruptions: int = 0

    @property
    def failing(self) -> bool:
        """Whether the table is in trouble: its last round failed. It may be Pending or Tiering again meanwhile."""
        return self.consecutive_failures > 0

    @property
    def interrupted(self) -> bool:
        """Whether the table is Failed although no round failed: its last one was cancelled, or its driver was lost."""
        return self.state is TieringState.FAILED and not self.failing

    @property
    def parked(self) -> bool:
        """Whether the table failed so often in a row that it is not tried again until it is resumed or altered."""
        return self.state is TieringState.FAILED and self.next_retry_time is None

    def lag_ms(self, now: int) -> int | None:
        """Return for how long the oldest record has waited that is not in the lake, in milliseconds.

        Args:
            now: The present time, in milliseconds since the epoch.

        Returns:
            0 if no record waits; None if it is not known.
        """
        if self.waiting_since is None:
            return None if self.records_waiting is None else 0
        return max(0, now - self.waiting_since)


@dataclass(frozen=True, slots=True)
class StatusChanges:
    """The news for a watcher of statuses: first all statuses that it watches, later those that changed.

    Attributes:
        statuses: The new or changed statuses.
        removed: The tables that were dropped or are no longer tiered.
    """

    statuses: tuple[TieringStatus, ...] = ()
    removed: tuple[TablePath, ...] = ()


@dataclass(frozen=True, slots=True)
class RoundOrigin:
    """Where a round was started: the task in Airflow, and the Spark application. A text is empty if it is not known.

    Attributes:
        run_id: The id of the DAG run.
        map_index: The map index of the task; None if it is not mapped.
        try_number: The number of the task's try, from 1; 0 if it is not known.
        spark_ui_url: The address of Spark's user interface. Most of them answer only as long as the application runs.
    """

    dag_id: str = ""
    run_id: str = ""
    task_id: str = ""
    map_index: int | None = None
    try_number: int = 0
    spark_application_id: str = ""
    spark_ui_url: str = ""

    @classmethod
    def of_process(cls, environment: Mapping[str, str], spark_application_id: str = "", spark_ui_url: str = "") -> Self:
        """Return where a process was started. What a server would not take is left out: it is not worth a round.

        Args:
            environment: The environment of the process. Airflow tells there which task it runs.
            spark_application_id: The id of the process's Spark application.
            spark_ui_url: The address of its user interface.
        """
        return cls(
            dag_id=_text(environment.get(_DAG_ID, "")),
            run_id=_text(environment.get(_RUN_ID, "")),
            task_id=_text(environment.get(_TASK_ID, "")),
            map_index=_number(environment.get(MAP_INDEX_VARIABLE, "")),
            try_number=_number(environment.get(_TRY_NUMBER, "")) or 0,
            spark_application_id=_text(spark_application_id),
            spark_ui_url=_text(spark_ui_url) if is_web_address(spark_ui_url) else "",
        )


@dataclass(frozen=True, slots=True)
class TieringRound:
    """One round of a table: it runs (state TIERING), or it ended with an outcome. Times are in ms since the epoch.

    Attributes:
        table_id: The table's id.
        path: The table's path.
        tiering_epoch: The epoch of the round.
        state: TIERING while the round runs, then TIERED or FAILED.
        lease_id: The KV snapshot lease under which the round runs.
        attempt_token: The token of the lease's attempt; None if the lease was never acquired.
        driver: The name of the driver that runs the round.
        start_time: When the round began.
        end_time: When the round ended; None while it runs.
        error: Why the round failed; None if it did not fail or gave no reason.
        stats: What the round wrote; None if it has not succeeded or its driver did not report it.
        force_finished: Whether the driver ended the round before everything was tiered, so that the table is due again.
        coordinator_epoch: The coordinator epoch in which the round was handed out. Only the server knows it; it is 0
            for clients.
        interrupted: Whether something other than the table ended the round: somebody cancelled it, a newer attempt
            superseded it, or its driver was stopped or lost. Such a round is FAILED, but it does not count as a failure
            of the table.
        origin: Where the round was started; None if its driver did not tell.
        waiting_since: About when the oldest record was written that was not in the lake when the round began; None if
            none waited or if it is not known.
    """

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
    coordinator_epoch: int = 0
    interrupted: bool = False
    origin: RoundOrigin | None = None
    waiting_since: int | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to run a round of a table.

    Attributes:
        table_id: The table's id.
        path: The table's path.
        tiering_epoch: The epoch of the round. The driver names it in every report and commit.
        coordinator_epoch: The coordinator epoch in which the round is handed out. The driver names it in every report.
        executor_token: The token with which executors read the table as long as the round runs; empty if the server
            asks for none. It is a secret.
    """

    table_id: int
    path: TablePath
    tiering_epoch: int
    coordinator_epoch: int = 0
    executor_token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class LeaseOutcome:
    """The state of the rounds under a lease, for clients that wait for their end.

    Attributes:
        rounds: The newest round of each table under the lease.
        cancelled_reason: Why the newest attempt was cancelled; None if it was not cancelled.
        newest_attempt_token: The token of the newest attempt; None if the lease was never acquired.
    """

    rounds: tuple[TieringRound, ...]
    cancelled_reason: str | None = None
    newest_attempt_token: int | None = None


@dataclass(frozen=True, slots=True)
class HeartbeatEntry:
    """A heartbeat's report on one table: its round still runs, finished (with stats) or failed (with a reason).

    Attributes:
        table_id: The table's id.
        tiering_epoch: The epoch of the round.
        error_message: Why the round failed; None if it did not fail or gives no reason.
        stats: What a finished round wrote; None if the driver does not report it.
        coordinator_epoch: The coordinator epoch in which the round was handed out; 0 to name none. A report is refused
            if the round was handed out in another one, unless it is the present one.
        interrupted: Whether something other than the table ended a failed round, such as the end of Spark or of the
            driver.
        lake_rewritten: Whether an interrupted round ended because somebody rewrote data files of the lake table during
            each of its tries to commit.
    """

    table_id: int
    tiering_epoch: int
    error_message: str | None = None
    stats: TieringStats | None = None
    coordinator_epoch: int = 0
    interrupted: bool = False
    lake_rewritten: bool = False


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """The answer to a heartbeat: the table that was handed out, and the reports that were refused.

    Attributes:
        coordinator_epoch: The present coordinator epoch. The claim was handed out in it.
        claim: The table that was handed out; None if the driver did not ask for one or none is due.
        tiering_errors: The refused reports that a round still runs, as errors by table id.
        finished_errors: The refused reports that a round finished, as errors by table id.
        failed_errors: The refused reports that a round failed, as errors by table id.
    """

    coordinator_epoch: int
    claim: Claim | None = None
    tiering_errors: Mapping[int, FlussTieringError] = field(default_factory=dict)
    finished_errors: Mapping[int, FlussTieringError] = field(default_factory=dict)
    failed_errors: Mapping[int, FlussTieringError] = field(default_factory=dict)


def is_web_address(text: str) -> bool:
    """Return whether a text is an address that a browser may open, and that has no login.

    One with another scheme might run a script.
    """
    return _WEB_ADDRESS.match(text) is not None


def _text(text: str) -> str:
    return text if text.isprintable() and len(text) <= MAX_ORIGIN_CHARS else ""


def _number(text: str) -> int | None:
    """Return a number that is not negative and fits into 32 bits."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None
