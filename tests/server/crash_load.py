"""A load on a server that may be killed at any time, and what must be found afterwards.

Each worker has a table, a log table and leases of its own, and one call in flight: so what was acknowledged is exact,
and at most one step is in doubt, which must be found done or not done, never in between.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pyarrow as pa

from engine_support import HOUR, SCHEMA, descriptor, put
from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import TableBucket, TableInfo, TablePath, WriteKind
from fluss_tiering.model.tiering import Claim, HeartbeatEntry, TieringState, TieringStats
from fluss_tiering.storage.open import open_split_reader

UNKNOWN = -1
"""A number that the server chose in an answer that was lost."""


@dataclass(frozen=True)
class Held:
    """A lease: its newest token and expiration time, or UNKNOWN."""

    token: int
    expiration: int


@dataclass(frozen=True)
class State:
    """What a worker knows of what is its own. Rounds: epoch -> the states that it may be in, and its rows."""

    rows: dict[int, str] = field(default_factory=dict)
    log_end: int = 0
    leases: dict[str, Held] = field(default_factory=dict)
    rounds: dict[int, tuple[frozenset[TieringState], int | None]] = field(default_factory=dict)
    lake: tuple[int, int] | None = None
    tokens: int = 0


class Worker:
    """Does steps until the server is gone; then `check` compares and goes on from what was found."""

    def __init__(self, number: int, seed: int) -> None:
        self.random = random.Random(f"{seed}/{number}")
        self.name = f"w{number}"
        self.state = State()
        self.doubted: State | None = None
        self.steps = 0

    def prepare(self, client: TieringClient) -> None:
        self.table = client.create_table(TablePath("load", self.name), descriptor(num_buckets=2))
        self.log = client.create_table(TablePath("load", f"{self.name}_log"), descriptor(primary_key=False))
        rows = dict.fromkeys(range(20), "first")
        put(client, self.table, rows)
        self.state = replace(self.state, rows=rows)
        taken = client.take_kv_snapshots([self.table.path])[self.table.table_id]
        self.snapshots = {each.bucket: each.snapshot_id for each in taken}
        self.lease_ids = [f"{self.name}-a", f"{self.name}-b"]

    def run(self, target: str, stop: threading.Event) -> None:
        steps = [
            self.put,
            self.put,
            self.append,
            self.acquire,
            self.acquire,
            self.renew,
            self.drop,
            self.round,
            self.round,
        ]
        with TieringClient(target, timeout=20) as self.client:
            while not stop.is_set():
                try:
                    self.random.choice(steps)()
                except (FlussTieringError, ValueError):
                    # The server is gone, or the connection is closed for good; the step is in doubt.
                    assert stop.wait(20), f"{self.name}: a call failed, though the server was not killed"
                    return

    def _do(self, becomes: State, call: Callable[[], State | None]) -> None:
        """One call: in doubt as `becomes` until it is acknowledged, when the answer may say more."""
        self.doubted = becomes
        answered = call()
        self.state, self.doubted = answered or becomes, None
        self.steps += 1

    def put(self) -> None:
        changed = {self.random.randrange(40): f"value {self.steps}"}
        self._do(
            replace(self.state, rows={**self.state.rows, **changed}), lambda: put(self.client, self.table, changed)
        )

    def append(self) -> None:
        count = self.random.randrange(1, 50)
        rows = pa.table({"id": list(range(count)), "name": ["x"] * count}, schema=SCHEMA)
        self._do(
            replace(self.state, log_end=self.state.log_end + count),
            lambda: list(self.client.write_rows(self.log.path, WriteKind.APPEND, [rows])) and None,
        )

    def acquire(self) -> None:
        lease_id, duration = self.random.choice(self.lease_ids), self.random.randrange(HOUR, 2 * HOUR)

        def call() -> State:
            got = self.client.acquire_lease(lease_id, duration, self.snapshots)
            assert got.attempt_token > self.state.tokens, "tokens only grow"
            return self._with_lease(lease_id, Held(got.attempt_token, got.expiration_time), got.attempt_token)

        self._do(self._with_lease(lease_id, Held(UNKNOWN, UNKNOWN), self.state.tokens), call)

    def renew(self) -> None:
        lease_id, duration = self.random.choice(self.lease_ids), self.random.randrange(HOUR, 2 * HOUR)
        held = self.state.leases.get(lease_id)
        if held is None:
            return

        def call() -> State:
            renewed = self.client.renew_leases({lease_id: duration})[lease_id]
            assert isinstance(renewed, int), renewed
            return self._with_lease(lease_id, replace(held, expiration=renewed), self.state.tokens)

        self._do(self._with_lease(lease_id, replace(held, expiration=UNKNOWN), self.state.tokens), call)

    def drop(self) -> None:
        lease_id = self.random.choice(self.lease_ids)
        left = {key: held for key, held in self.state.leases.items() if key != lease_id}
        if self.random.random() < 0.5:
            self._do(replace(self.state, leases=left), lambda: self.client.drop_lease(lease_id) and None)
        else:
            self._do(
                replace(self.state, leases=left),
                lambda: self.client.release_lease(lease_id, self.snapshots) and None,
            )

    def round(self) -> None:
        """A round: claimed, its lake snapshot prepared and committed, finished or failed; each a step."""
        # One that is in doubt may run still: claiming under the same lease ends it.
        ended = {
            epoch: (states - {TieringState.TIERING} or frozenset({TieringState.FAILED}), rows)
            for epoch, (states, rows) in self.state.rounds.items()
        }
        claimed: list[Claim] = []

        def claim() -> State:
            (got,) = self.client.claim_tables([self.table.path], f"{self.name}-round", None, self.name)
            assert isinstance(got, Claim), got
            assert got.tiering_epoch > max(self.state.rounds, default=0), "epochs only grow"
            claimed.append(got)
            return replace(self.state, rounds={**ended, got.tiering_epoch: (frozenset({TieringState.TIERING}), None)})

        self._do(replace(self.state, rounds={**ended, UNKNOWN: (frozenset({TieringState.TIERING}), None)}), claim)
        epoch = claimed[0].tiering_epoch
        lake_id, offset = self.random.getrandbits(62), max(self.state.lake[1] if self.state.lake else 0, 1)
        offsets = {TableBucket(self.table.table_id, 0): offset}
        path = self.client.prepare_lake_snapshot(self.table, epoch, offsets)
        self._do(
            replace(self.state, lake=(lake_id, offset)),
            lambda: self.client.commit_lake_snapshot(self.table, epoch, lake_id, offsets, path, f"commit {lake_id}"),
        )
        rows = self.random.randrange(1000) if self.random.random() < 0.7 else None
        outcome = TieringState.FAILED if rows is None else TieringState.TIERED

        def report() -> None:
            if rows is None:
                failed = HeartbeatEntry(self.table.table_id, epoch, error_message="by intent")
                assert not self.client.heartbeat(failed=[failed]).failed_errors
            else:
                done = HeartbeatEntry(self.table.table_id, epoch, stats=TieringStats(rows=rows))
                assert not self.client.heartbeat(finished=[done]).finished_errors

        self._do(replace(self.state, rounds={**self.state.rounds, epoch: (frozenset({outcome}), rows)}), report)

    def _with_lease(self, lease_id: str, held: Held, tokens: int) -> State:
        return replace(self.state, leases={**self.state.leases, lease_id: held}, tokens=tokens)

    def check(self, client: TieringClient) -> None:
        """That the server has what was acknowledged, with or without the step in doubt; goes on from there."""
        found = self._found(client)
        allowed = [self.state] if self.doubted is None else [self.state, self.doubted]
        problems = [_difference(state, found) for state in allowed]
        assert None in problems, f"{self.name} after {self.steps} steps: {problems}; found {found}"
        self.state, self.doubted = found, None

    def _found(self, client: TieringClient) -> State:
        leases = {each.lease_id: each for each in client.list_leases() if each.lease_id in self.lease_ids}
        assert all(lease.snapshots == self.snapshots for lease in leases.values())
        client.kv_snapshot_metadata(list(self.snapshots.items()))
        (status,) = client.list_tiering_statuses(self.table.path)
        rounds = client.list_tiering_rounds(self.table.path, limit=1000)
        assert status.tiering_epoch >= max((each.tiering_epoch for each in rounds), default=0), "epochs only grow"
        lake = client.lake_snapshot(self.table.path)
        with client.scan(self.table) as scan:
            rows = pa.Table.from_batches(scan, schema=SCHEMA)
        (log,) = client.list_buckets([self.log.path])[self.log.path]
        assert _log_rows(client, self.log, log.log_end_offset) == log.log_end_offset
        return State(
            rows=dict(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True)),
            log_end=log.log_end_offset,
            leases={key: Held(each.attempt_token, each.expiration_time) for key, each in leases.items()},
            rounds={each.tiering_epoch: (frozenset({each.state}), each.stats and each.stats.rows) for each in rounds},
            lake=lake and (lake.snapshot_id, lake.log_end_offsets[TableBucket(self.table.table_id, 0)]),
            tokens=max([self.state.tokens, *(each.attempt_token for each in leases.values())]),
        )


def _log_rows(client: TieringClient, table: TableInfo, end: int) -> int:
    reader = open_split_reader(client.describe_storage(), "")
    return sum(each.records.num_rows for each in reader.read_log(table, TableBucket(table.table_id, 0), 0, end))


def _difference(expected: State, found: State) -> str | None:
    """The first thing that is not as expected, or None."""
    for name in ("rows", "log_end", "lake"):
        if getattr(expected, name) != getattr(found, name):
            return f"{name}: expected {getattr(expected, name)}, found {getattr(found, name)}"
    if expected.leases.keys() != found.leases.keys():
        return f"leases: expected {expected.leases}, found {found.leases}"
    for lease_id, held in expected.leases.items():
        got = found.leases[lease_id]
        if held.expiration not in (UNKNOWN, got.expiration) or held.token not in (UNKNOWN, got.token):
            return f"lease {lease_id}: expected {held}, found {got}"
    unknown = expected.rounds.get(UNKNOWN)
    known = {epoch: each for epoch, each in expected.rounds.items() if epoch != UNKNOWN}
    more = found.rounds.keys() - known.keys()
    if len(more) != (unknown is not None) or not known.keys() <= found.rounds.keys():
        return (
            f"rounds: expected {sorted(known)}{' and one more' * (unknown is not None)}, found {sorted(found.rounds)}"
        )
    for epoch, (states, rows) in known.items():
        got_states, got_rows = found.rounds[epoch]
        if not got_states <= states or got_rows != rows:
            return f"round {epoch}: expected {set(states)} of {rows} rows, found {set(got_states)} of {got_rows}"
    return None
