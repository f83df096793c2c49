"""How far a lake table is behind, as its status tells it."""

from __future__ import annotations

from cases import cases
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import TieringState, TieringStatus


@cases(("records", "since", "lag"), [(None, None, None), (0, None, 0), (3, 900, 100), (3, 1000, 0), (3, 1001, 0)])
def test_the_lag_counts_from_the_oldest_record_that_waits(
    records: int | None, since: int | None, lag: int | None
) -> None:  # D27
    status = TieringStatus(
        1, TablePath("db", "t"), TieringState.SCHEDULED, 0, 1, records_waiting=records, waiting_since=since
    )
    assert status.lag_ms(1000) == lag
