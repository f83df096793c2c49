"""Compares tiering with a reference: transitions, epochs, fences, outcomes (S1, S3-S6, S9, S22, S24, S25)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fluss_tiering.model.tiering import TieringRound, TieringState, TieringStatus
from fluss_tiering.server.core.managers import Managers
from simulation.lease_checks import LeaseChecks
from simulation.scheduler import Scheduler
from simulation.server import HEARTBEAT_TIMEOUT_MS
from simulation.storage import ModelStorage

# S1, as the seed has it: kept apart from the code's own table of transitions.
_STEPS: Final = (
    (None, "New"),
    (None, "Initialized"),
    ("New", "Scheduled"),
    ("Initialized", "Scheduled"),
    ("Tiered", "Scheduled"),
    ("Scheduled", "Pending"),
    ("Failed", "Pending"),
    ("Tiered", "Pending"),
    ("Pending", "Tiering"),
    ("Tiering", "Tiered"),
    ("Tiering", "Failed"),
)
_SURPRISE: Final = re.compile(r"[A-Z]\w*Error: ")
_MOST_STEPS_AT_ONCE: Final = 5


def _reachable() -> frozenset[tuple[str | None, str, int]]:
    """Return (from, to, gained epochs) for every sequence of steps that one transaction may contain."""
    found: set[tuple[str | None, str, int]] = set()
    ends: set[tuple[str | None, str | None, int]] = {(start, start, 0) for start, _ in _STEPS}
    for _ in range(_MOST_STEPS_AT_ONCE):
        ends = {
            (start, to, epochs + (to == "Pending"))
            for (start, at, epochs), (of, to) in itertools.product(ends, _STEPS)
            if at == of
        }
        found |= {(start, to, epochs) for start, to, epochs in ends if to is not None}
    return frozenset(found)


_REACHABLE: Final = _reachable()


@dataclass(slots=True)
class RoundReference:
    """One round: who was told to run it, and its outcome."""

    lease_id: str
    attempt_token: int | None
    last_heard: int
    outcome: str | None = None


class TieringChecks:
    """Follows the requests of the tiering service, and what became durable of them."""

    def __init__(self, scheduler: Scheduler, leases: LeaseChecks, violated: Callable[[str], None]) -> None:
        self._scheduler = scheduler
        self._leases = leases
        self._violated = violated
        self._statuses: dict[int, TieringStatus] = {}
        self._rounds: dict[tuple[int, int], RoundReference] = {}
        self._running: dict[int, int] = {}
        self._newest_epoch: dict[int, int] = {}
        self._claimed: set[tuple[int, int]] = set()
        self._server_started = 0
        self.counters = {"rounds": 0, "rounds tiered": 0, "rounds failed": 0}

    def before(self, method: str, request: Any) -> Any:
        """Return what is known before a request: the newest epochs, and the rounds that ended as Tiered."""
        if method == "LakeTieringHeartbeat":
            ended = {entry.table_id for entry in request.finished_tables if self._outcome(entry) == "Tiered"}
            return dict(self._newest_epoch), ended
        if method in {"PrepareLakeTableSnapshot", "CommitLakeTableSnapshot"}:
            return dict(self._newest_epoch)
        return None

    def after(self, method: str, request: Any, response: Any, seen: Any) -> None:
        """Check a request that was acknowledged."""
        match method:
            case "ClaimTables":
                self._claims(request, response)
            case "LakeTieringHeartbeat":
                self._heartbeat(request, response, *seen)
            case "CancelTiering":
                self._cancelled(request, response)
            case "PrepareLakeTableSnapshot":
                self._fenced(request.bucket_offsets, response.prepared_tables, seen, "prepare")
            case "CommitLakeTableSnapshot":
                self._fenced(request.tables_req, response.tables_resp, seen, "commit")

    def durable(self, writes: Sequence[tuple[str, tuple[Any, ...]]]) -> None:
        """Check what one transaction wrote."""
        rounds = {
            (each.table_id, each.tiering_epoch): each
            for name, (several, *_) in writes
            if name == "put_rounds"
            for each in several
        }
        # In the order in which they happened: a claim ends the round that it supersedes, then begins its own.
        for each in sorted(rounds.values(), key=lambda each: (each.table_id, each.tiering_epoch)):
            self._round(each)
        for name, (value, *_) in writes:
            if name == "put_statuses":
                for status in value:
                    self._status(status)
            elif name == "delete_table":
                self._statuses.pop(value, None)
                epoch = self._running.pop(value, None)
                if epoch is not None and (value, epoch) not in rounds:
                    self._violated(f"S12, S25: table {value} was dropped and round {epoch} has no outcome")

    def started(self, managers: Managers) -> None:
        """Check that the server has loaded what was durable (S3, S24)."""
        self._server_started = self._scheduler.now
        loaded = {status.table_id: status for status in managers.tiering.statuses()}
        if loaded != self._statuses:
            differing = {
                key: (self._statuses.get(key), loaded.get(key))
                for key in {*loaded, *self._statuses}
                if loaded.get(key) != self._statuses.get(key)
            }
            self._violated(f"S3, S24: after the restart the statuses are not what was durable: {differing}")

    def check_silent(self) -> None:
        """Check that no round has been silent for longer than the time-out after its check ran (S4)."""
        for table_id, epoch in self._running.items():
            silent = self._scheduler.now - max(self._rounds[table_id, epoch].last_heard, self._server_started)
            if silent >= HEARTBEAT_TIMEOUT_MS:
                self._violated(f"S4: round {epoch} of table {table_id} is silent for {silent} ms and goes on")

    def check_due(self, managers: Managers, storage: ModelStorage) -> None:
        """Check that every table that is due and has records to tier is Pending."""
        for status in managers.tiering.statuses():
            newest = managers.lake.newest(status.table_id)
            tiered = {} if newest is None else newest.log_end_offsets
            waiting = sum(each.log_end_offset - tiered.get(each.bucket, 0) for each in storage.buckets(status.path))
            # It is more for a moment, until a commit has been counted.
            if status.records_waiting is not None and status.records_waiting < waiting:
                self._violated(f"{status.path} counts {status.records_waiting} records of {waiting} that wait")
            due = status.next_round_time is not None and status.next_round_time <= self._scheduler.now
            if status.state is TieringState.SCHEDULED and due and waiting and status.records_waiting is not None:
                self._violated(f"{status.path} is due with {waiting} records and stays Scheduled")

    def check_ended(self) -> None:
        """Check at rest that every round that anybody was given has an outcome (S25)."""
        open_rounds = [key for key, each in self._rounds.items() if each.outcome is None]
        if open_rounds:
            self._violated(f"S25: rounds without an outcome: {open_rounds}")

    def _claims(self, request: Any, response: Any) -> None:
        token = request.attempt_token if request.HasField("attempt_token") else None
        for claim in response.claims:
            if claim.HasField("error"):
                continue
            if token is not None and token < self._leases.newest_token(request.lease_id):
                self._violated(f"L22: stale attempt {token} of lease {request.lease_id} claimed table {claim.table_id}")
            self._claim(claim.table_id, claim.tiering_epoch)

    def _claim(self, table_id: int, epoch: int) -> None:
        if (table_id, epoch) in self._claimed:
            self._violated(f"S22: epoch {epoch} of table {table_id} was given to two workers")
        if epoch <= self._newest_epoch.get(table_id, 0):
            self._violated(f"S3: epoch {epoch} of table {table_id} after {self._newest_epoch[table_id]}")
        if self._running.get(table_id) != epoch:
            self._violated(f"S24: the claim of epoch {epoch} of table {table_id} is not durable")
        self._claimed.add((table_id, epoch))
        self._newest_epoch[table_id] = epoch

    def _heartbeat(self, request: Any, response: Any, newest: dict[int, int], ended: set[int]) -> None:
        if response.HasField("tiering_table"):
            self._claim(response.tiering_table.table_id, response.tiering_table.tiering_epoch)
        self._fenced(request.tiering_tables, response.tiering_table_resp, newest, "renew")
        self._fenced(request.finished_tables, response.finished_table_resp, newest, "finish")
        self._fenced(request.failed_tables, response.failed_table_resp, newest, "fail")
        for entry, answer in zip(request.tiering_tables, response.tiering_table_resp, strict=True):
            known = self._rounds.get((entry.table_id, entry.tiering_epoch))
            if known is not None and not answer.HasField("error"):
                known.last_heard = self._scheduler.now
        for entry, answer in zip(request.finished_tables, response.finished_table_resp, strict=True):
            refused = answer.HasField("error")
            if refused and entry.table_id in ended and entry.table_id in self._statuses:
                self._violated(f"S9: a repeated finish of epoch {entry.tiering_epoch} of table {entry.table_id} fails")
            if not refused and self._outcome(entry) != "Tiered":
                self._violated(f"S25: the finish of epoch {entry.tiering_epoch} of {entry.table_id} is not recorded")

    def _cancelled(self, request: Any, response: Any) -> None:
        if not request.HasField("attempt_token"):
            return
        newest = self._leases.newest_token(request.lease_id)
        if request.attempt_token < newest and not response.stale_attempt:
            self._violated(f"L22: stale attempt {request.attempt_token} cancelled lease {request.lease_id} of {newest}")
        for each in response.cancelled_rounds:
            if each.attempt_token > request.attempt_token:
                self._violated(f"L22: attempt {request.attempt_token} cancelled a round of {each.attempt_token}")

    def _fenced(self, entries: Sequence[Any], answers: Sequence[Any], newest: dict[int, int], verb: str) -> None:
        """Check that only the newest round is answered without an error, or a repetition of a round's own outcome."""
        for entry, answer in zip(entries, answers, strict=True):
            repeated = {"finish": "Tiered", "fail": "Failed"}.get(verb)
            stale = entry.tiering_epoch < newest.get(entry.table_id, 0)
            if stale and not answer.HasField("error") and (repeated is None or self._outcome(entry) != repeated):
                self._violated(f"S5: {verb} of stale epoch {entry.tiering_epoch} of table {entry.table_id} was taken")

    def _outcome(self, entry: Any) -> str | None:
        known = self._rounds.get((entry.table_id, entry.tiering_epoch))
        return known.outcome if known else None

    def _status(self, status: TieringStatus) -> None:
        before = self._statuses.get(status.table_id)
        old_state, old_epoch = (before.state.value, before.tiering_epoch) if before else (None, 0)
        gained = status.tiering_epoch - old_epoch
        if (old_state, gained) != (status.state.value, 0) and (
            (old_state, status.state.value, gained) not in _REACHABLE
        ):
            self._violated(
                f"S1, S3: table {status.table_id} went from {old_state} ({old_epoch}) to {status.state} "
                f"({status.tiering_epoch})"
            )
        self._statuses[status.table_id] = status
        runs = status.state is TieringState.TIERING
        if (self._running.get(status.table_id) == status.tiering_epoch) is not runs:
            self._violated(f"S25: table {status.table_id} is {status.state}, its round {self._running}")

    def _round(self, each: TieringRound) -> None:
        key, known = (each.table_id, each.tiering_epoch), self._rounds.get((each.table_id, each.tiering_epoch))
        if each.state is TieringState.TIERING:
            if known is not None:
                self._violated(f"S22: round {key} began twice")
            if each.table_id in self._running:
                self._violated(f"S22: round {key} began while {self._running[each.table_id]} runs")
            self.counters["rounds"] += 1
            self._running[each.table_id] = each.tiering_epoch
            self._rounds[key] = RoundReference(each.lease_id, each.attempt_token, self._scheduler.now)
            return
        if known is None or known.outcome is not None or each.end_time is None:
            self._violated(f"S25: round {key} ended as {each.state} after {known}")
            return
        silent = self._scheduler.now - known.last_heard
        if (each.error or "").startswith("heartbeat timed out") and silent < HEARTBEAT_TIMEOUT_MS:
            self._violated(f"S4: round {key} timed out after {silent} ms")
        if _SURPRISE.match(each.error or ""):
            self._violated(f"round {key} failed with an error that is none of ours: {each.error}")
        known.outcome = each.state.value
        self.counters["rounds tiered" if each.state is TieringState.TIERED else "rounds failed"] += 1
        self._running.pop(each.table_id, None)
