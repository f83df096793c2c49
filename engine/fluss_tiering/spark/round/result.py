"""The results of a piece, of a round, and of a table in an application."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fluss_tiering.lake.files import LakeFile
from fluss_tiering.lake.protocol import LakeTableSize
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import MAX_PARTITIONS, TieringState, TieringStats

if TYPE_CHECKING:
    from fluss_tiering.lake.key_index import PieceKeys


@dataclass(frozen=True, slots=True)
class PieceResult:
    """What the successful attempt of a task wrote for one piece.

    Attributes:
        piece: The number of the piece.
        rows: How many rows were read. An update counts as one row.
        files: The files that were written.
        peak_bytes: The worker's largest resident memory so far.
        expired: What was said when the credentials for the lake's store ended before the piece was written. It has no
            files then, and has to be done again. None if the piece is written.
        keys: Where the keys of the piece are noted, if it does not delete rows by itself; None if it does.
    """

    piece: int
    rows: int
    files: tuple[LakeFile, ...]
    peak_bytes: int
    expired: str | None = None
    keys: PieceKeys | None = None


@dataclass(frozen=True, slots=True)
class RoundCost:
    """What a round cost.

    Attributes:
        plan: The elapsed seconds of planning.
        stage: The elapsed seconds of the Spark stages.
        commit: The elapsed seconds of the commit.
        peak_worker_bytes: The largest resident memory of a worker.
    """

    plan: float = 0.0
    stage: float = 0.0
    commit: float = 0.0
    peak_worker_bytes: int = 0


@dataclass(frozen=True, slots=True)
class RoundOutcome:
    """The outcome of a round that did not fail.

    Attributes:
        stats: What was written.
        complete: False if the round stopped at its limit of bytes or of time, so that more is due.
        cost: What the round cost.
    """

    stats: TieringStats
    complete: bool = True
    cost: RoundCost = field(default_factory=RoundCost)


@dataclass(frozen=True, slots=True)
class TableResult:
    """The outcome of a table in an application.

    Attributes:
        state: The state of the table after the round.
        seconds: The elapsed seconds since the claim was requested.
        epoch: The tiering epoch of the round; None if the table could not be claimed.
        stats: What was written.
        error: The reason of a failure; None if the table was tiered.
        recorded: Whether the server knows this outcome, so that those who wait for the table see it.
        complete: False if more is due for the table at once.
        cost: What the round cost.
        interrupted: Whether something other than the table is why it was not tiered: the application was cancelled,
            superseded or stopped, or its Spark has ended.
        held_by_another: Whether there was no round here, because another round holds the table.
        attempted: False if the table does not exist or is not tiered, so that nothing was tried and told of it.
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
    interrupted: bool = False
    held_by_another: bool = False
    attempted: bool = True

    @property
    def failed(self) -> bool:
        """Whether the table was not tiered."""
        return self.state is not TieringState.TIERED

    @property
    def outcome(self) -> str:
        """The outcome in a word, for people."""
        return "Interrupted" if self.interrupted else self.state.value


def total_stats(
    pieces: Iterable[PieceResult], partitions: Collection[str], lake_snapshot_id: int, lake_size: LakeTableSize
) -> TieringStats:
    """Return the sums over a round's pieces, with the partitions that changed and the lake table's size after it."""
    rows = size = files = 0
    for piece in pieces:
        # Deletion vectors may share Puffin files.
        written = {file.location: file.size_bytes for file in piece.files}
        rows += piece.rows
        size += sum(written.values())
        files += len(written)
    return TieringStats(
        rows,
        size,
        files,
        lake_snapshot_id,
        lake_size.file_bytes,
        lake_size.records,
        tuple(sorted(partitions)) if len(partitions) <= MAX_PARTITIONS else (),
    )
