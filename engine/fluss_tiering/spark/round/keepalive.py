"""Keeps an application's leases and rounds alive from a thread of its own, and stops a round that is lost.

Between two heartbeats, `hear` takes the server's news of statuses, so that a cancelled round ends within seconds.
Renewals and heartbeats never wait for a round, and a round never waits for them. A round that lost its lease or its
epoch is stopped early, so that it wastes no time. The fence at the commit, not this module, keeps it from doing harm.

A failure that the server could not record, for instance because its disk was full, is reported again from here.
Otherwise the table would stay Tiering until the server misses the heartbeats of the round.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable
from typing import Final, Self

from fluss_tiering.client import TieringClient
from fluss_tiering.model.closing import Closing
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.tiering import Claim, HeartbeatEntry, StatusChanges, TieringState, TieringStatus
from fluss_tiering.spark.runtime import SYSTEM, Runtime

HEARTBEAT_INTERVAL_S: Final = 30.0
"""A quarter of the time after which the server interrupts a round that sends no heartbeats."""
_RETRY_S: Final = 5.0

logger = logging.getLogger(__name__)


class RoundGuard:
    """Says whether one round may go on.

    Args:
        stop: Ends the round's work. It is called once, from any thread, when the round is lost.
        runtime: The clock of the application.

    Attributes:
        claim: The claim of the round.
        began: The time of the claim, in seconds of the runtime's clock.
        attempt: The id of this attempt at the round. No other attempt has it, of whichever server the table is.
        reports_its_end: Whether the round tells the server its outcome by now. The answer to that decides then, and
            what else says that the round has ended may be news of this very outcome.
    """

    def __init__(self, claim: Claim, stop: Callable[[], None], runtime: Runtime = SYSTEM) -> None:
        self.claim = claim
        self.began = runtime.monotonic()
        self.attempt = uuid.uuid4()
        self.reports_its_end = False
        self._stop = stop
        self._lost: FlussTieringError | None = None
        self._lock = threading.Lock()

    @property
    def lost(self) -> FlussTieringError | None:
        """The reason why the round has to stop; None while it may go on."""
        return self._lost

    def lose(self, reason: FlussTieringError) -> None:
        """End the round for a reason. A later reason changes nothing."""
        with self._lock:
            if self._lost is not None:
                return
            self._lost = reason
        logger.warning("stopping the round of %s, epoch %d: %s", self.claim.path, self.claim.tiering_epoch, reason)
        self._stop()

    def check(self) -> None:
        """Raise the reason why the round has to stop, if there is one."""
        if self._lost is not None:
            raise self._lost


class KeepAlive(Closing):
    """Renews leases every third of their duration, and sends one heartbeat for all rounds.

    Args:
        lease_duration_ms: How long a renewed lease lasts, in milliseconds.
        heartbeat_interval_s: The time between two heartbeats, in seconds.
        retry_s: The pause after a renewal or a heartbeat that failed, in seconds.
        runtime: The clock and the threads of the application.
    """

    def __init__(
        self,
        client: TieringClient,
        lease_duration_ms: int,
        *,
        heartbeat_interval_s: float = HEARTBEAT_INTERVAL_S,
        retry_s: float = _RETRY_S,
        runtime: Runtime = SYSTEM,
    ) -> None:
        self._client = client
        self._duration_ms = lease_duration_ms
        self._renew_interval_s = lease_duration_ms / 3000
        self._heartbeat_interval_s = heartbeat_interval_s
        self._retry_s = retry_s
        self._now = runtime.monotonic
        self._lock = threading.Lock()
        self._holders: dict[str, set[int]] = {}
        self._guards: dict[int, RoundGuard] = {}
        self._unrecorded: dict[int, HeartbeatEntry] = {}
        self._closed = runtime.new_event()
        self._thread = runtime.new_thread(self._run, "fluss-tiering-keepalive")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def close(self) -> None:
        """End the renewals and the heartbeats."""
        self._closed.set()
        self._thread.join()

    def hold(self, lease_id: str, table_id: int) -> None:
        """Renew the lease as long as a table holds it."""
        with self._lock:
            self._holders.setdefault(lease_id, set()).add(table_id)

    def let_go(self, lease_id: str, table_id: int) -> None:
        """Renew the lease no longer, unless another table holds it."""
        with self._lock:
            holders = self._holders.get(lease_id, set())
            holders.discard(table_id)
            if not holders:
                self._holders.pop(lease_id, None)

    def watch(self, guard: RoundGuard) -> None:
        """Send heartbeats for the round."""
        with self._lock:
            self._guards[guard.claim.table_id] = guard

    def unwatch(self, guard: RoundGuard) -> None:
        """Send no more heartbeats for the round, which has ended."""
        with self._lock:
            self._guards.pop(guard.claim.table_id, None)

    def report_later(self, failed: HeartbeatEntry) -> None:
        """Report the failure of a round with each next heartbeat, until the server has answered."""
        with self._lock:
            self._unrecorded[failed.table_id] = failed

    def hear(self, changes: StatusChanges) -> None:
        """Ask for the rounds at once if news of statuses say that one has ended. Any thread may call this.

        The news may be older than a claim, so that the answer to a heartbeat decides.
        """
        with self._lock:
            guards = [guard for guard in self._guards.values() if not guard.reports_its_end]
        claims = {guard.claim.path: guard.claim for guard in guards}
        ended = any(each.path in claims and _has_ended(claims[each.path], each) for each in changes.statuses)
        if not ended and not any(path in claims for path in changes.removed):
            return
        try:
            self._heartbeat()
        except FlussTieringError as error:
            if self._closed.is_set():
                return
            logger.warning("a round seems to have ended, which the next heartbeat finds out: %s", error)

    def stop_rounds(self, reason: FlussTieringError) -> None:
        """Stop every round that runs."""
        with self._lock:
            guards = list(self._guards.values())
        for guard in guards:
            guard.lose(reason)

    def _run(self) -> None:
        now = self._now()
        next_renewal, next_heartbeat = now + self._renew_interval_s, now + self._heartbeat_interval_s
        while not self._closed.wait(max(0.0, min(next_renewal, next_heartbeat) - self._now())):
            now = self._now()
            if now >= next_heartbeat:
                # They are two calls: a server that cannot record a failure shall hear of the rounds all the same.
                worked = [self._try(self._heartbeat), self._try(self._report)]
                next_heartbeat = now + (self._heartbeat_interval_s if all(worked) else self._retry_s)
            if now >= next_renewal:
                next_renewal = now + (self._renew_interval_s if self._try(self._renew) else self._retry_s)

    def _try(self, call: Callable[[], None]) -> bool:
        try:
            call()
        except FlussTieringError as error:
            logger.warning("the heartbeat or the renewal failed, the next attempt is in %g s: %s", self._retry_s, error)
            return False
        return True

    def _heartbeat(self) -> None:
        with self._lock:
            guards = dict(self._guards)
        if not guards:
            return
        entries = [
            HeartbeatEntry(table_id, guard.claim.tiering_epoch, coordinator_epoch=guard.claim.coordinator_epoch)
            for table_id, guard in guards.items()
        ]
        for table_id, error in self._client.heartbeat(tiering=entries).tiering_errors.items():
            # A round that ended while the heartbeat was on its way is no longer watched and need not be stopped.
            with self._lock:
                watched = self._guards.get(table_id) is guards[table_id]
            if watched and not guards[table_id].reports_its_end:
                guards[table_id].lose(error)

    def _report(self) -> None:
        with self._lock:
            unrecorded = dict(self._unrecorded)
        if not unrecorded:
            return
        # A refusal is an answer, too: the server knows another outcome of the round.
        self._client.heartbeat(failed=list(unrecorded.values()))
        with self._lock:
            for table_id, entry in unrecorded.items():
                if self._unrecorded.get(table_id) is entry:
                    del self._unrecorded[table_id]

    def _renew(self) -> None:
        with self._lock:
            durations = dict.fromkeys(self._holders, self._duration_ms)
        if not durations:
            return
        for lease_id, answer in self._client.renew_leases(durations).items():
            if isinstance(answer, FlussTieringError):
                with self._lock:
                    holders = self._holders.pop(lease_id, set())
                    guards = [self._guards[table_id] for table_id in holders if table_id in self._guards]
                for guard in guards:
                    guard.lose(answer)


def _has_ended(claim: Claim, status: TieringStatus) -> bool:
    """Return whether a status is later than the round of a claim. The table was Pending under the same epoch before."""
    if status.table_id != claim.table_id or status.tiering_epoch > claim.tiering_epoch:
        return True
    before_or_during = (TieringState.PENDING, TieringState.TIERING)
    return status.tiering_epoch == claim.tiering_epoch and status.state not in before_or_during
