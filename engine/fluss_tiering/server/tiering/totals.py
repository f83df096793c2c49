"""What rounds came to since the server started, for its metrics; the history is in the store (S23)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fluss_tiering.model.tiering import TieringRound, TieringState, TieringStats


@dataclass(frozen=True, slots=True)
class TableTotals:
    """Of one table's rounds.

    Attributes:
        failures: rounds that failed.
        duration_ms: of the last round that was tiered; None before the first.
        lake_file_size: bytes of the lake table's files, as the last driver that knew told.
        lake_record_count: records of them, likewise.
        rows: that all rounds wrote.
        bytes: that all rounds wrote.
    """

    failures: int = 0
    duration_ms: int | None = None
    lake_file_size: int | None = None
    lake_record_count: int | None = None
    rows: int = 0
    bytes: int = 0


_NONE = TableTotals()


class RoundTotals:
    """Changed in the thread of control; a table's totals may be read from any, since each change replaces them."""

    def __init__(self) -> None:
        self._totals: dict[int, TableTotals] = {}

    def of(self, table_id: int) -> TableTotals:
        """A table's totals."""
        return self._totals.get(table_id, _NONE)

    def count(self, tiering_round: TieringRound) -> None:
        """Counts a round that ended; one that began is not counted."""
        totals = self.of(tiering_round.table_id)
        if tiering_round.state is TieringState.FAILED:
            self._totals[tiering_round.table_id] = replace(totals, failures=totals.failures + 1)
        elif tiering_round.state is TieringState.TIERED and tiering_round.end_time is not None:
            stats = tiering_round.stats or TieringStats()
            self._totals[tiering_round.table_id] = replace(
                totals,
                duration_ms=tiering_round.end_time - tiering_round.start_time,
                # An empty round leaves the lake table as it was, and tells nothing of it.
                lake_file_size=totals.lake_file_size if stats.lake_file_size is None else stats.lake_file_size,
                lake_record_count=totals.lake_record_count
                if stats.lake_record_count is None
                else stats.lake_record_count,
                rows=totals.rows + stats.rows,
                bytes=totals.bytes + stats.bytes,
            )

    def forget(self, table_id: int) -> None:
        """Forgets a table that was dropped or is not tiered any more."""
        self._totals.pop(table_id, None)
