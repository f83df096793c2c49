"""Runs one or several rounds of a peer: it makes tables due, waits, and measures from the claim to the commit."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from benchmarks.flink.measure import TreeSampler
from benchmarks.flink.tables import BenchmarkTables
from fluss_tiering.model.table import TableInfo, TablePath

_POLL_SECONDS: Final = 0.05
"""The time between two looks at the cluster; a shorter time would cost the cluster a fifth of a core."""
_CHECK_SECONDS: Final = 1.0
_TIMEOUT_SECONDS: Final = 300.0


class Peer(Protocol):
    """A tiering service that can be started and watched. Times are in seconds since the epoch."""

    name: str

    def start(self) -> None:
        """Start the service and return at once."""
        ...

    def stop(self) -> None:
        """End the service."""
        ...

    def pids(self) -> Sequence[int]:
        """Return the processes of the service, without their children."""
        ...

    def claim_time(self, table: TableInfo, after: float) -> float | None:
        """Return when the first round of the table began after that time; None if none did."""
        ...

    def finish_time(self, table: TableInfo, after: float) -> float | None:
        """Return when the first round of the table ended after that time; None if none did."""
        ...

    def failure(self) -> str | None:
        """Return why a round failed; None if none did."""
        ...


@dataclass(frozen=True, slots=True)
class Measured:
    """Rounds of tables by one peer.

    Attributes:
        seconds: The time from the first claim to the last commit that the cluster knows.
        waited: The time from when the tables were due, or from the start of a fresh process, to the first claim.
        peak_bytes: The largest memory of all processes of the peer together (`TreeSampler`).
        snapshots: The lake's newest snapshot before the rounds and now, by table.
    """

    peer: str
    seconds: float
    waited: float
    cpu_seconds: float
    peak_bytes: int
    snapshots: dict[TablePath, tuple[int | None, int]]

    @property
    def from_start(self) -> float:
        """The seconds from when the tables were due, or from the process's start, to the last commit."""
        return self.waited + self.seconds


def running(peer: Peer, tables: BenchmarkTables, chosen: Sequence[TableInfo]) -> Measured:
    """Run rounds with a process that runs already."""
    with TreeSampler(peer.pids) as sampler:
        before = {info.path: tables.lake_snapshot_id(info) for info in chosen}
        after = time.time()
        due = tables.make_pending(chosen)
        return _measured(peer, tables, chosen, before, sampler, after=after, due=due)


def fresh(peer: Peer, tables: BenchmarkTables, chosen: Sequence[TableInfo]) -> Measured:
    """Run rounds with a process that is started for them and ended."""
    before = {info.path: tables.lake_snapshot_id(info) for info in chosen}
    tables.make_pending(chosen)
    try:
        began = time.time()
        peer.start()
        with TreeSampler(peer.pids) as sampler:
            return _measured(peer, tables, chosen, before, sampler, after=began, due=began)
    finally:
        peer.stop()


def _measured(
    peer: Peer,
    tables: BenchmarkTables,
    chosen: Sequence[TableInfo],
    before: dict[TablePath, int | None],
    sampler: TreeSampler,
    *,
    after: float,
    due: float,
) -> Measured:
    snapshots: dict[TablePath, tuple[int | None, int]] = {}

    def all_committed() -> bool:
        # It stops at the first table without a commit, so that a hundred tables cost the cluster no more than one.
        for info in chosen[len(snapshots) :]:
            newest = tables.lake_snapshot_id(info)
            if newest is None or newest == before[info.path]:
                return False
            snapshots[info.path] = (before[info.path], newest)
        return True

    def all_ended() -> bool:
        return all(peer.finish_time(info, after) is not None for info in chosen)

    _wait_for(all_committed, peer)
    committed = time.time()
    _wait_for(all_ended, peer)
    tables.tiered(chosen)
    claimed = min(claim for info in chosen if (claim := peer.claim_time(info, after)) is not None)
    # One more sample is taken after the commit, to interpolate the CPU seconds.
    time.sleep(0.5)
    return Measured(
        peer.name,
        committed - claimed,
        # A running process may claim the table before this process knows that it is due.
        max(0.0, claimed - due),
        sampler.cpu_seconds(claimed, committed),
        sampler.peak_bytes(claimed, committed),
        snapshots,
    )


def _wait_for(ready: Callable[[], bool], peer: Peer) -> None:
    started = checked = time.monotonic()
    while not ready():
        time.sleep(_POLL_SECONDS)
        if (now := time.monotonic()) - checked < _CHECK_SECONDS:
            continue
        checked = now
        if reason := peer.failure():
            raise SystemExit(f"error: a round of {peer.name} failed: {reason}")
        if now - started > _TIMEOUT_SECONDS:
            raise SystemExit(f"error: a round of {peer.name} took longer than {_TIMEOUT_SECONDS:.0f} s")
