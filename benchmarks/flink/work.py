"""The work that both peers do one after the other, each on its own tables with the same rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.flink.rounds import Measured, Peer, fresh, running
from benchmarks.flink.tables import BenchmarkTables, batches_of
from fluss_tiering.model.table import TableInfo

NEW_ROWS: Final = 1_000
TABLES: Final = 5
SMALL_TABLES: Final = 100
_SEED_OF_CHANGES: Final = 2


@dataclass(frozen=True, slots=True)
class Sizes:
    """The number of rows of each piece of work. The log table has `log` rows; the other numbers are shares of it."""

    log: int = 4_000_000

    @property
    def keyed(self) -> int:
        """The rows of the primary-key table for a running process."""
        return self.log // 2

    @property
    def keyed_fresh(self) -> int:
        """The rows of the primary-key table for a fresh process, which are then changed."""
        return self.log // 4

    @property
    def upserted(self) -> int:
        """The rows that are upserted; one in ten of them is new."""
        return self.keyed_fresh * 3 // 10

    @property
    def deleted(self) -> int:
        """The rows that are deleted."""
        return self.keyed_fresh // 50

    @property
    def each_of_many(self) -> int:
        """The rows of each of several tables."""
        return self.log // 20


class Turn:
    """The turn of one peer: it loads its tables and does each piece of work."""

    def __init__(self, tables: BenchmarkTables, sizes: Sizes) -> None:
        self._tables = tables
        self._sizes = sizes
        self._keyed_changed: TableInfo | None = None

    def fresh_rounds(self, peer: Peer) -> Iterator[tuple[Work, Measured]]:
        """Run each piece of work with a process of its own."""
        tables, sizes = self._tables, self._sizes
        log = tables.load("log_fresh", sizes.log)
        keyed = self._keyed_changed = tables.load("keyed_changed", sizes.keyed_fresh, primary_key=True)
        few = tables.load("few_fresh", NEW_ROWS)
        many = [tables.load(f"many_fresh_{number}", sizes.each_of_many) for number in range(TABLES)]
        yield LOG_FRESH, fresh(peer, tables, [log])
        yield KEYED_FRESH, fresh(peer, tables, [keyed])
        yield FEW_FRESH, fresh(peer, tables, [few])
        yield MANY_FRESH, fresh(peer, tables, many)

    def running_rounds(self, peer: Peer) -> Iterator[tuple[Work, Measured]]:
        """Run all work with one process, after rounds that warm it up."""
        tables, sizes = self._tables, self._sizes
        log = tables.load("log_running", sizes.log)
        keyed = tables.load("keyed_running", sizes.keyed, primary_key=True)
        many = [tables.load(f"many_running_{number}", sizes.each_of_many) for number in range(TABLES)]
        small = [tables.load(f"small_{number}", NEW_ROWS) for number in range(SMALL_TABLES)]
        changed = self._keyed_changed or tables.load("keyed_changed", sizes.keyed_fresh, primary_key=True)
        first = [
            tables.load("warm_up_log", sizes.each_of_many),
            tables.load("warm_up_keyed", sizes.each_of_many, primary_key=True),
        ]
        peer.start()
        try:
            running(peer, tables, first)
            tables.append(first[0], sizes.each_of_many, sizes.each_of_many)
            self._change(first[1], sizes.each_of_many)
            running(peer, tables, first)
            yield LOG, running(peer, tables, [log])
            yield KEYED, running(peer, tables, [keyed])
            tables.append(log, sizes.log, NEW_ROWS)
            yield FEW, running(peer, tables, [log])
            if self._keyed_changed is None:
                running(peer, tables, [changed])
            self._change(changed, sizes.keyed_fresh)
            yield CHANGES, running(peer, tables, [changed])
            yield MANY, running(peer, tables, many)
            yield SMALL, running(peer, tables, small)
        finally:
            peer.stop()

    def _change(self, table: TableInfo, count: int) -> None:
        """Upsert 30 % of `count` keys, of which a tenth is new, and delete 2 %."""
        upserted, deleted = count * 3 // 10, count // 50
        new = upserted // 10
        touched = np.random.default_rng(1).choice(count, upserted - new + deleted, replace=False)
        changed, gone = np.split(touched, [upserted - new])
        ids = np.concatenate([changed, np.arange(count, count + new)])
        self._tables.upsert(table, batches_of(ids, _SEED_OF_CHANGES))
        self._tables.delete(table, batches_of(gone, _SEED_OF_CHANGES))


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal for our figure compared with Flink's. `text` describes it; `met` receives Flink's figure and ours."""

    text: str
    met: Callable[[Measured, Measured], bool]


@dataclass(frozen=True, slots=True)
class Work:
    """One line of the report. `rows` returns how many rows of the source the round reads, for given sizes."""

    name: str
    rows: Callable[[Sizes], int]
    goals: Sequence[Goal]


def _times_as_fast(factor: float) -> Goal:
    return Goal(f">= {factor:g}x", lambda flink, ours: flink.seconds >= factor * ours.seconds)


def _share_of_cpu(divisor: int) -> Goal:
    return Goal(f"<= 1/{divisor} CPU", lambda flink, ours: ours.cpu_seconds <= flink.cpu_seconds / divisor)


_LESS_MEMORY: Final = Goal("less memory", lambda flink, ours: ours.peak_bytes < flink.peak_bytes)
_SOON: Final = Goal("< 0.25 s", lambda _, ours: ours.seconds < 0.25)
_CLAIMED_SOON: Final = Goal("claimed < 1.5 s", lambda _, ours: ours.waited < 1.5)
_STARTED_SOON: Final = Goal("start to commit < 6 s", lambda _, ours: ours.from_start < 6)

LOG: Final = Work("log table, running", lambda sizes: sizes.log, (_times_as_fast(7.5), _share_of_cpu(9), _LESS_MEMORY))
LOG_FRESH: Final = Work("log table, fresh", lambda sizes: sizes.log, (_times_as_fast(6),))
KEYED: Final = Work("primary-key table, first round, running", lambda sizes: sizes.keyed, (_times_as_fast(6),))
KEYED_FRESH: Final = Work(
    "primary-key table, first round, fresh", lambda sizes: sizes.keyed_fresh, (_times_as_fast(5),)
)
CHANGES: Final = Work(
    "changes of a primary-key table, running",
    lambda sizes: sizes.upserted + sizes.deleted,
    (_times_as_fast(6), _share_of_cpu(8)),
)
FEW: Final = Work("1,000 new rows, running", lambda _: NEW_ROWS, (_SOON, _CLAIMED_SOON))
FEW_FRESH: Final = Work("1,000 rows, from the process's start", lambda _: NEW_ROWS, (_STARTED_SOON,))
MANY: Final = Work("five tables, running", lambda sizes: TABLES * sizes.each_of_many, (_times_as_fast(6),))
MANY_FRESH: Final = Work("five tables, fresh", lambda sizes: TABLES * sizes.each_of_many, (_times_as_fast(7),))
SMALL: Final = Work(
    "100 small tables, running", lambda _: SMALL_TABLES * NEW_ROWS, (_times_as_fast(6), _share_of_cpu(5))
)
ALL: Final = (LOG, LOG_FRESH, KEYED, KEYED_FRESH, CHANGES, FEW, FEW_FRESH, MANY, MANY_FRESH, SMALL)
