"""What was acknowledged, kept as simply as can be: the reference that the managers are compared with."""

from __future__ import annotations

from dataclasses import dataclass, field

from fluss_tiering.model.table import TableBucket

LONG_AGO = 0


@dataclass(slots=True)
class LeaseReference:
    """One lease as its holders were told.

    Attributes:
        newest_token: of the newest acquire that was acknowledged.
        maybe_newer: an acquire may have been made durable and never acknowledged, since the server died.
        latest_expiration: the latest that any renewal or acquire, acknowledged or not, can have set.
    """

    pins: dict[TableBucket, int] = field(default_factory=dict)
    expiration: int = LONG_AGO
    latest_expiration: int = LONG_AGO
    newest_token: int = 0
    maybe_newer: bool = False


@dataclass(slots=True)
class RoundReference:
    """One round: who was told that it is theirs, and what became of it."""

    lease_id: str
    attempt_token: int | None
    last_heard: int
    outcome: str | None = None


@dataclass(slots=True)
class LakeReference:
    """One table: its log, and the rows that the lake must hold at its committed offsets.

    Attributes:
        logs: bucket -> the storage's own list of changes, which outlives the table.
        rows: bucket -> key -> value of the log's prefix.
    """

    table_id: int
    logs: dict[int, list[object]]
    offsets: dict[int, int] = field(default_factory=dict)
    rows: dict[int, dict[int, int]] = field(default_factory=dict)
    by_snapshot: dict[int, dict[int, int]] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
