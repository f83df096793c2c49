"""Measures whether a round's cost grows only with its bytes: rounds of tables of several sizes on a Fluss cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.cluster import running_cluster
from benchmarks.flink.our_tiering import OurTiering
from benchmarks.flink.rounds import Measured, running
from benchmarks.flink.tables import BenchmarkTables
from fluss_tiering.model.tiering import TieringStats

LOG_ROWS: Final = (1_000_000, 4_000_000, 16_000_000)
KEYED_ROWS: Final = (1_000_000, 4_000_000)
MOST_TIMES_AS_LONG: Final = 1.2
"""The bound for the time per row of a larger round, divided by that of the smallest round."""

_WARM_UP_ROWS: Final = 50_000


@dataclass(frozen=True, slots=True)
class Scaled:
    """A round of one size.

    Attributes:
        stats: What the round wrote, from the history of rounds.
        times_as_long: The time per row, divided by that of the smallest round of the same work.
    """

    work: str
    stats: TieringStats
    round: Measured
    times_as_long: float

    @property
    def kept(self) -> bool:
        return self.times_as_long <= MOST_TIMES_AS_LONG


def measure(scale: float) -> list[Scaled]:
    """Load all tables, and tier each in an application of its own, after one small round."""
    with running_cluster() as cluster:
        loaded = [
            (work, [_Loaded(cluster.tables, max(1_000, int(count * scale)), keyed=keyed) for count in counts])
            for work, counts, keyed in (
                ("log table", LOG_ROWS, False),
                ("primary-key table, first round", KEYED_ROWS, True),
            )
        ]
        with OurTiering(cluster.folder / "ours", cluster.bootstrap) as ours:
            return [each for work, tables in loaded for each in _scaled(work, _rounds(ours, cluster.tables, tables))]


class _Loaded:
    """A table, and a small table for the round before."""

    def __init__(self, tables: BenchmarkTables, row_count: int, *, keyed: bool) -> None:
        name = f"{'keyed' if keyed else 'log'}_{row_count}"
        self.row_count = row_count
        self.table = tables.load(name, row_count, primary_key=keyed)
        self.small = tables.load(f"{name}_warm_up", _WARM_UP_ROWS, primary_key=keyed)


def _rounds(
    ours: OurTiering, tables: BenchmarkTables, loaded: Sequence[_Loaded]
) -> Iterator[tuple[Measured, TieringStats]]:
    for each in loaded:
        ours.start()
        try:
            running(ours, tables, [each.small])
            measured = running(ours, tables, [each.table])
        finally:
            ours.stop()
        wrote = ours.wrote(each.table)
        if wrote.rows != each.row_count:
            raise SystemExit(f"error: a round of {each.row_count:,} rows wrote {wrote.rows:,}")
        yield measured, wrote


def _scaled(work: str, rounds: Iterable[tuple[Measured, TieringStats]]) -> Iterator[Scaled]:
    smallest: float | None = None
    for measured, stats in rounds:
        seconds_per_row = measured.seconds / stats.rows
        smallest = smallest or seconds_per_row
        yield Scaled(work, stats, measured, seconds_per_row / smallest)
