"""The backlog of each table: the log records that are not in the lake, counted while they are written and tiered."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fluss_tiering.model.clock import Clock
from fluss_tiering.model.lake import LakeSnapshot
from fluss_tiering.model.table import BucketInfo, TableBucket

_PARTS: Final = 16
"""How exactly the age of a backlog is known: it may be shown too old by this part of the time that it took to grow.

A table keeps the times of a few hundred writes at most, since their number grows with the logarithm of that time.
"""


@dataclass(frozen=True, slots=True)
class Backlog:
    """The log records of a table that are not in the lake.

    Attributes:
        records: The number of records.
        since: About when the oldest of them was written, in milliseconds since the epoch; None if there is none, or if
            it was written before this server looked at the table for the first time.
    """

    records: int
    since: int | None


class _Counter:
    """Counts the records of one table. Its lock is held during each call."""

    __slots__ = (
        "_dropped",
        "_ends",
        "_lost",
        "_marks",
        "_records",
        "_seen",
        "counted",
        "lock",
        "tiered",
        "uncountable",
    )

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.counted = False
        self.uncountable = False
        self._ends: dict[TableBucket, int] = {}
        self._dropped: frozenset[int] = frozenset()
        # The ends of the logs of dropped partitions, and up to where they are in the lake.
        self._lost: dict[TableBucket, tuple[int, int]] = {}
        self.tiered: Mapping[TableBucket, int] = {}
        self._records = 0
        # Records count from the first look on. A mark is the number of records before a write, and the write's time.
        self._seen = 0
        self._marks: list[tuple[int, int | None]] = []

    @property
    def backlog(self) -> Backlog | None:
        """The backlog; None before the buckets were counted."""
        if not self.counted:
            return None
        oldest = self._seen - self._records
        since = next((time for seen, time in reversed(self._marks) if seen <= oldest), None)
        return Backlog(self._records, since if self._records else None)

    @property
    def may_wait(self) -> bool:
        return self.uncountable or self._records > 0

    @property
    def has_lost(self) -> bool:
        return bool(self._lost)

    def written(self, log_end_offsets: Mapping[TableBucket, int], now: int) -> None:
        before = self._seen
        for bucket, end in log_end_offsets.items():
            if bucket.partition_id not in self._dropped:
                self._move(bucket, end)
        self._mark(before, now)

    def count(self, buckets: Iterable[BucketInfo], tiered: Mapping[TableBucket, int], now: int) -> None:
        before = self._seen
        for info in buckets:
            # Writes may be noted before an older look at the buckets.
            if info.log_end_offset and info.bucket.partition_id not in self._dropped:
                self._move(info.bucket, info.log_end_offset)
        self._mark(before, now)
        self._counted(tiered)

    def replace(self, buckets: Iterable[BucketInfo], tiered: Mapping[TableBucket, int], now: int) -> None:
        before = self._seen
        present = [info for info in buckets if info.bucket.partition_id not in self._dropped]
        self._lose({bucket.partition_id for bucket in self._ends} - {info.bucket.partition_id for info in present})
        ends, self._ends = self._ends, {info.bucket: info.log_end_offset for info in present if info.log_end_offset}
        self._seen += sum(max(0, end - ends.get(bucket, 0)) for bucket, end in self._ends.items())
        self._mark(before, now)
        self._counted(tiered)

    def tier(self, tiered: Mapping[TableBucket, int], committed: Mapping[TableBucket, int]) -> None:
        # A round may have read a partition before it was dropped. The offsets of the lake snapshot lack it.
        for bucket in self._lost.keys() & committed.keys():
            end, before = self._lost[bucket]
            self._lost[bucket] = end, max(before, committed[bucket])
        if self.counted:
            self._counted(tiered)

    def lost(self) -> dict[TableBucket, int]:
        return {bucket: max(0, end - tiered) for bucket, (end, tiered) in self._lost.items()}

    def forget_lost(self, buckets: Iterable[TableBucket]) -> None:
        gone = set(buckets)
        self._lost = {bucket: each for bucket, each in self._lost.items() if bucket not in gone}

    def drop_partition(self, partition_id: int) -> None:
        self._lose({partition_id})
        self._dropped |= {partition_id}
        self._ends = {bucket: end for bucket, end in self._ends.items() if bucket.partition_id != partition_id}
        self._recount()

    def _lose(self, partitions: Collection[int | None]) -> None:
        if self.counted:
            for bucket, end in self._ends.items():
                tiered = max(0, self.tiered.get(bucket, 0))
                if bucket.partition_id in partitions and end > tiered:
                    self._lost[bucket] = end, tiered

    def _move(self, bucket: TableBucket, end: int) -> None:
        before = self._ends.get(bucket, 0)
        if end > before:
            tiered = max(0, self.tiered.get(bucket, 0))
            self._ends[bucket] = end
            self._seen += end - before
            self._records += max(0, end - tiered) - max(0, before - tiered)

    def _counted(self, tiered: Mapping[TableBucket, int]) -> None:
        self.tiered = tiered
        self.counted, self.uncountable = True, False
        self._recount()

    def _recount(self) -> None:
        self._records = sum(max(0, end - max(0, self.tiered.get(bucket, 0))) for bucket, end in self._ends.items())
        oldest = self._seen - self._records
        first = next((at for at in range(len(self._marks) - 1, -1, -1) if self._marks[at][0] <= oldest), 0)
        self._marks = self._marks[first:] if self._records else []

    def _mark(self, before: int, now: int) -> None:
        """Keep the time of the records that were seen after the first `before` ones."""
        if not self.counted:
            self._marks = [(0, None)]
        elif self._seen > before and self._is_later(now):
            self._marks.append((before, now))

    def _is_later(self, now: int) -> bool:
        times = [time for _, time in self._marks if time is not None]
        return not times or (now - times[-1]) * _PARTS > now - times[0]


class Backlogs:
    """The backlogs of all tables. Any thread may call any method.

    Tables of the embedded storage are counted once and followed from then on, so that no call looks at each bucket but
    those that are about the whole table. Tables of a cluster are counted again and again.

    Args:
        newest: Returns the newest lake snapshot of a table; None if there is none. Any thread may call it.
    """

    def __init__(self, clock: Clock, newest: Callable[[int], LakeSnapshot | None]) -> None:
        self._clock = clock
        self._newest = newest
        self._lock = threading.Lock()
        self._counters: dict[int, _Counter] = {}
        self._changed: set[int] = set()
        self._losing: set[int] = set()

    def follow(self, table_ids: Iterable[int]) -> None:
        """Begin to follow tables that are not counted yet. What is written to a table before is not noticed."""
        for table_id in table_ids:
            self._counters.setdefault(table_id, _Counter())

    def created(self, table_id: int) -> None:
        """Begin to follow a table that has no records."""
        self.follow([table_id])
        self.count(table_id, ())

    def written(self, log_end_offsets: Mapping[TableBucket, int]) -> None:
        """Note a write to a table that is followed.

        Args:
            log_end_offsets: The log end offset after the write of each bucket that got records, all of one table.
        """
        for bucket in log_end_offsets:
            counter = self._counters.get(bucket.table_id)
            if counter is not None:
                with counter.lock:
                    counter.written(log_end_offsets, self._clock.now_ms())
                self._note(bucket.table_id)
            return

    def partition_dropped(self, table_id: int, partition_id: int) -> None:
        """Note that a partition of a table that is followed was dropped, with all of its records."""
        counter = self._counters.get(table_id)
        if counter is not None:
            with counter.lock:
                counter.drop_partition(partition_id)
            self._note(table_id)
            self._note_lost(table_id, counter)

    def count(self, table_id: int, buckets: Sequence[BucketInfo]) -> None:
        """Count the records of a table that is followed. Writes may have been noted that the buckets do not have yet.

        Args:
            buckets: All of its buckets.
        """
        counter = self._counters.get(table_id)
        if counter is not None:
            with counter.lock:
                counter.count(buckets, self._tiered(table_id), self._clock.now_ms())
            self._note(table_id)

    def replace(self, table_id: int, buckets: Sequence[BucketInfo]) -> None:
        """Count the records of a table that others write to. Buckets that are not given are gone.

        Args:
            table_id: The table. It is followed from now on.
            buckets: All of its buckets.
        """
        self.follow([table_id])
        counter = self._counters[table_id]
        with counter.lock:
            counter.replace(buckets, self._tiered(table_id), self._clock.now_ms())
        self._note(table_id)
        self._note_lost(table_id, counter)

    def cannot_count(self, table_id: int) -> None:
        """Note that the buckets of a table that is followed cannot be read, so that it may have a backlog."""
        counter = self._counters.get(table_id)
        if counter is not None:
            with counter.lock:
                counter.uncountable = not counter.counted
            self._note(table_id)

    def tiered(self, table_id: int, committed: Mapping[TableBucket, int]) -> None:
        """Note that a table has another newest lake snapshot.

        Args:
            committed: The offset up to which each bucket is in the lake, also of partitions that were dropped since.
        """
        counter = self._counters.get(table_id)
        if counter is not None:
            with counter.lock:
                counter.tier(self._tiered(table_id), committed)
            self._note(table_id)

    def losing(self) -> list[int]:
        """Return the ids of the tables whose partitions were dropped with records that were not in the lake then."""
        with self._lock:
            return list(self._losing)

    def lost(self, table_id: int) -> Mapping[TableBucket, int]:
        """Return the number of records of dropped buckets that are not in the lake. A running round may have some."""
        counter = self._counters.get(table_id)
        if counter is None:
            return {}
        with counter.lock:
            return counter.lost()

    def untiered(self, table_id: int) -> int:
        """Return the number of records that are lost if a table is dropped now, with those of dropped partitions."""
        backlog = self.of(table_id)
        return sum(self.lost(table_id).values()) + (backlog.records if backlog else 0)

    def forget_lost(self, table_id: int, buckets: Iterable[TableBucket]) -> None:
        """Forget dropped buckets whose records were counted."""
        with self._lock:
            self._losing.discard(table_id)
        counter = self._counters.get(table_id)
        if counter is not None:
            with counter.lock:
                counter.forget_lost(buckets)
            self._note_lost(table_id, counter)

    def forget(self, table_id: int) -> None:
        """Forget a dropped table."""
        self._counters.pop(table_id, None)
        self._note(table_id)

    def is_current(self, table_id: int) -> bool:
        """Return whether a table was counted, with its newest lake snapshot."""
        counter, newest = self._counters.get(table_id), self._newest(table_id)
        if counter is None or not counter.counted:
            return False
        return not counter.tiered if newest is None else counter.tiered is newest.log_end_offsets

    def of(self, table_id: int) -> Backlog | None:
        """Return the backlog of a table; None if it is not known."""
        counter = self._counters.get(table_id)
        if counter is None:
            return None
        with counter.lock:
            return counter.backlog

    def may_wait(self, table_id: int) -> bool:
        """Return whether a table has a backlog, or may have one that cannot be counted.

        It is false before a table was counted, unless it was written to. It is true for a table that is not followed.
        """
        counter = self._counters.get(table_id)
        return counter is None or counter.may_wait

    def take_changed(self) -> set[int]:
        """Return the ids of the tables whose backlogs changed since the last call."""
        if not self._changed:
            return set()
        with self._lock:
            changed, self._changed = self._changed, set()
        return changed

    def _tiered(self, table_id: int) -> Mapping[TableBucket, int]:
        newest = self._newest(table_id)
        return {} if newest is None else newest.log_end_offsets

    def _note_lost(self, table_id: int, counter: _Counter) -> None:
        if counter.has_lost:
            with self._lock:
                self._losing.add(table_id)

    def _note(self, table_id: int) -> None:
        with self._lock:
            self._changed.add(table_id)
