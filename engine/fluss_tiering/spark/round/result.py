"""What comes out of rounds: of a piece, of a round, of a table in an application."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from fluss_tiering.lake.protocol import LakeFile, LakeTableSize
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import TieringState, TieringStats


@dataclass(frozen=True, slots=True)
class StageSeconds:
    """Where workers spent their time, summed over tasks; `decode` is part of no other."""

    read: float = 0.0
    decode: float = 0.0
    reduce: float = 0.0
    encode: float = 0.0

    def __add__(self, other: StageSeconds) -> StageSeconds:
        return StageSeconds(
            self.read + other.read, self.decode + other.decode, self.reduce + other.reduce, self.encode + other.encode
        )


@dataclass(frozen=True, slots=True)
class PieceResult:
    """What the winning attempt of a task wrote for one piece.

    Attributes:
        rows: read; of a change, what the row was before is not another one.
        peak_bytes: the worker's largest resident size so far.
    """

    piece: int
    rows: int
    files: tuple[LakeFile, ...]
    seconds: StageSeconds
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class RoundCost:
    """What a round's steps took on the clock, in seconds, and the workers' own time and largest size."""

    plan: float = 0.0
    stage: float = 0.0
    commit: float = 0.0
    workers: StageSeconds = field(default_factory=StageSeconds)
    peak_worker_bytes: int = 0


@dataclass(frozen=True, slots=True)
class RoundOutcome:
    """A round that did not fail. `complete` is False when it stopped at its limit of bytes."""

    stats: TieringStats
    complete: bool = True
    cost: RoundCost = field(default_factory=RoundCost)


@dataclass(frozen=True, slots=True)
class TableResult:
    """What became of a table in an application.

    Attributes:
        epoch: of the round; None when the table could not be claimed.
        recorded: whether the server knows this outcome, so that waiters see it.
        seconds: from the claim's request on.
        held_by_another: whether there was no round here, since another one holds the table.
    """

    path: TablePath
    state: TieringState
    seconds: float
    epoch: int | None = None
    stats: TieringStats = field(default_factory=TieringStats)
    error: str | None = None
    recorded: bool = False
    complete: bool = True
    cost: RoundCost = field(default_factory=RoundCost)
    held_by_another: bool = False

    @property
    def failed(self) -> bool:
        """Whether the table was not tiered."""
        return self.state is not TieringState.TIERED


def total_stats(pieces: Iterable[PieceResult], lake_snapshot_id: int, lake_size: LakeTableSize) -> TieringStats:
    """The sum over a round's pieces, beside the size of the lake table after it."""
    rows = size = files = 0
    for piece in pieces:
        rows += piece.rows
        size += sum(file.size_bytes for file in piece.files)
        files += len(piece.files)
    return TieringStats(rows, size, files, lake_snapshot_id, lake_size.file_bytes, lake_size.records)
