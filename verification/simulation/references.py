"""The reference with which the managers are compared: a simple record of what was acknowledged."""

from __future__ import annotations

from dataclasses import dataclass, field

from fluss_tiering.model.table import TableBucket

LONG_AGO = 0


@dataclass(slots=True)
class LeaseReference:
    """One lease, as its holders know it.

    Attributes:
        newest_token: The token of the newest acquire that was acknowledged.
        maybe_newer: Whether an acquire may be durable but was not acknowledged, because the server died.
        latest_expiration: The latest expiration that any renewal or acquire, acknowledged or not, may have set.
    """

    pins: dict[TableBucket, int] = field(default_factory=dict)
    expiration: int = LONG_AGO
    latest_expiration: int = LONG_AGO
    newest_token: int = 0
    maybe_newer: bool = False


@dataclass(slots=True)
class RoundReference:
    """One round: who was told to run it, and its outcome."""

    lease_id: str
    attempt_token: int | None
    last_heard: int
    outcome: str | None = None


@dataclass(slots=True)
class LakeReference:
    """One table: its log, and the rows that the lake must hold at its committed offsets.

    Attributes:
        logs: The storage's own list of changes by bucket, which outlives the table.
        rows: The rows of the log's prefix, as bucket -> key -> value.
    """

    table_id: int
    logs: dict[int, list[object]]
    offsets: dict[int, int] = field(default_factory=dict)
    rows: dict[int, dict[int, int]] = field(default_factory=dict)
    by_snapshot: dict[int, dict[int, int]] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
