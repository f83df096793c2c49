"""Tables of the embedded storage without new records: they are not due, and statuses tell what waits (D27)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from engine_support import HOUR, MINUTE, ServerThread, VirtualClock, descriptor, new_path, new_table, put
from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, DataType, TableDescriptor, TableInfo, WriteKind
from fluss_tiering.model.tiering import Claim, HeartbeatEntry, TieringState, TieringStatus
from fluss_tiering.server.backends.embedded.jobs import TableOpening
from waiting import wait_until

UNCHANGED = "table.datalake.tier-when-unchanged"


class Server:
    """A server on a clock to turn by hand, whose jobs about due tables a test can run."""

    def __init__(self, running: ServerThread, client: TieringClient, clock: VirtualClock) -> None:
        self.running = running
        self.client = client
        self.clock = clock

    def move_due(self) -> None:
        """Run the job that moves due tables, so that what stays Scheduled was not just not moved yet."""
        components = self.running.server._metrics.collector._active
        assert components is not None
        self.running.run(components.threads.control(components.managers.tiering.move_due_tables))

    def status(self, table: TableInfo) -> TieringStatus:
        (status,) = self.client.list_tiering_statuses(table.path)
        return status

    def state_after(self, table: TableInfo, ms: int) -> TieringState:
        self.clock.advance(ms)
        self.move_due()
        return self.status(table).state

    def claim(self, table: TableInfo) -> Claim:
        (claim,) = self.client.claim_tables([table.path], "lease", None, "driver")
        assert isinstance(claim, Claim)
        return claim

    def tier(self, table: TableInfo, part: float = 1.0, *, forced: bool = False) -> None:
        """A round that tiers this part of what waits in each bucket."""
        claim = self.claim(table)
        snapshot = self.client.lake_snapshot(table.path)
        tiered = {} if snapshot is None else snapshot.log_end_offsets
        ends = {}
        for each in self.client.list_buckets([table.path])[table.path]:
            start = tiered.get(each.bucket, 0)
            ends[each.bucket] = start + int((each.log_end_offset - start) * part)
        path = self.client.prepare_lake_snapshot(table, claim.tiering_epoch, ends)
        self.client.commit_lake_snapshot(table, claim.tiering_epoch, claim.tiering_epoch, ends, path, "commit")
        entry = HeartbeatEntry(claim.table_id, claim.tiering_epoch)
        force_finished = [claim.table_id] if forced else []
        assert not self.client.heartbeat(finished=[entry], force_finished=force_finished).finished_errors


@contextmanager
def serving(folder: Path, clock: VirtualClock) -> Iterator[Server]:
    with (
        ServerThread(folder, clock=clock, heartbeat_check_interval=HOUR) as running,
        TieringClient(running.target) as client,
    ):
        yield Server(running, client, clock)


@pytest.fixture
def server(tmp_path: Path, clock: VirtualClock) -> Iterator[Server]:
    with serving(tmp_path / "data", clock) as opened:
        yield opened


@pytest.mark.parametrize("primary_key", [True, False])
def test_a_table_is_due_only_once_something_was_written(server: Server, primary_key: bool) -> None:  # D27, S2
    table = new_table(server.client, [1, 2], primary_key=primary_key, freshness="3min")
    assert server.state_after(table, 3 * MINUTE - 1) is TieringState.SCHEDULED
    assert server.state_after(table, 1) is TieringState.PENDING
    server.tier(table)
    epoch = server.status(table).tiering_epoch
    for _ in range(3):
        assert server.state_after(table, HOUR) is TieringState.SCHEDULED
    assert server.status(table).tiering_epoch == epoch

    put(server.client, table, {3: "new"})
    assert server.state_after(table, 0) is TieringState.PENDING, "its freshness is over for long"
    server.tier(table)
    put(server.client, table, {4: "newer"})
    assert server.state_after(table, 3 * MINUTE - 1) is TieringState.SCHEDULED, "it is fresh enough"
    assert server.state_after(table, 1) is TieringState.PENDING


def test_a_driver_that_asks_for_a_table_is_given_one_at_once_after_a_write(server: Server) -> None:  # D27
    table = new_table(server.client, [1])
    server.tier(table)
    server.clock.advance(HOUR)
    assert server.client.heartbeat(request_table=True).claim is None
    put(server.client, table, {2: "new"})
    claim = server.client.heartbeat(request_table=True).claim
    assert claim is not None
    assert claim.table_id == table.table_id


def test_a_freshness_of_zero_makes_no_empty_rounds(server: Server) -> None:  # D27
    table = new_table(server.client, [1], freshness="0s")
    assert server.state_after(table, 0) is TieringState.PENDING
    server.tier(table)
    assert server.status(table).state is TieringState.SCHEDULED
    server.tier(table)
    put(server.client, table, {2: "new"})
    claim = server.claim(table)
    server.client.heartbeat(finished=[HeartbeatEntry(claim.table_id, claim.tiering_epoch)])
    assert server.status(table).state is TieringState.PENDING, "that round tiered nothing of what waits"


def test_an_empty_table_has_one_round_which_makes_its_lake_table(server: Server) -> None:  # D27
    table = new_table(server.client)
    assert server.state_after(table, 3 * MINUTE) is TieringState.PENDING
    claim = server.claim(table)
    server.client.heartbeat(finished=[HeartbeatEntry(claim.table_id, claim.tiering_epoch)])
    assert server.state_after(table, HOUR) is TieringState.SCHEDULED
    status = server.status(table)
    assert (status.records_waiting, status.waiting_since, status.lag_ms(server.clock.now_ms())) == (0, None, 0)


def test_a_failed_table_is_tried_again_without_new_records(server: Server) -> None:  # D27
    table = new_table(server.client, [1])
    server.tier(table)
    claim = server.claim(table)
    server.client.heartbeat(failed=[HeartbeatEntry(claim.table_id, claim.tiering_epoch, "broken")])
    assert server.state_after(table, MINUTE) is TieringState.PENDING


def test_a_table_that_wants_it_is_due_at_each_freshness(server: Server) -> None:  # D27
    table = new_table(server.client, [1], properties={UNCHANGED: "true"})
    server.tier(table)
    assert server.state_after(table, 3 * MINUTE) is TieringState.PENDING
    server.tier(table)
    server.client.alter_table(table.path, {UNCHANGED: "false"})
    assert server.state_after(table, HOUR) is TieringState.SCHEDULED
    server.client.alter_table(table.path, {UNCHANGED: "true"})
    assert server.status(table).state is TieringState.PENDING, "it has been due for long"
    with pytest.raises(FlussTieringError, match=f"{UNCHANGED} is 'sometimes': expected true or false") as refused:
        server.client.alter_table(table.path, {UNCHANGED: "sometimes"})
    assert refused.value.code is ErrorCode.INVALID_TABLE


def test_a_restart_makes_no_table_due_and_forgets_none(tmp_path: Path, clock: VirtualClock) -> None:  # D27
    with serving(tmp_path / "data", clock) as server:
        unchanged, changed, wanted = (
            new_table(server.client, [1, 2], num_buckets=2, properties=properties)
            for properties in ({}, {}, {UNCHANGED: "true"})
        )
        for table in (unchanged, changed, wanted):
            server.tier(table)
        put(server.client, changed, {3: "new"})
        tiered_time = server.status(changed).last_tiered_time
    clock.advance(HOUR)
    with serving(tmp_path / "data", clock) as server:
        for table, waiting, state in (
            (unchanged, 0, TieringState.SCHEDULED),
            (changed, 1, TieringState.PENDING),
            (wanted, 0, TieringState.PENDING),
        ):
            wait_until(lambda table=table: server.status(table).records_waiting is not None)  # type: ignore[misc]
            assert server.state_after(table, 0) is state
            assert server.status(table).records_waiting == waiting
        assert server.status(changed).waiting_since == tiered_time
        put(server.client, unchanged, {3: "new"})
        assert server.state_after(unchanged, 0) is TieringState.PENDING


def test_a_table_is_not_due_before_its_log_was_looked_at(
    tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:  # D27
    with serving(tmp_path / "data", clock) as server:
        idle, written = new_table(server.client, [1]), new_table(server.client, [1])
        for table in (idle, written):
            server.tier(table)
    clock.advance(HOUR)

    async def nothing(_: object) -> None:
        pass

    monkeypatch.setattr(TableOpening, "run_once", nothing)
    with serving(tmp_path / "data", clock) as server:
        put(server.client, written, {2: "new"})
        assert server.state_after(idle, 0) is TieringState.SCHEDULED
        assert server.status(idle).records_waiting is None
        assert server.status(idle).lag_ms(clock.now_ms()) is None
        assert server.status(written).state is TieringState.PENDING, "what is written now is new"


def test_a_table_that_cannot_be_read_is_due_so_that_its_round_tells_why(tmp_path: Path, clock: VirtualClock) -> None:
    with serving(tmp_path / "data", clock) as server:  # D27
        table = new_table(server.client, [1], primary_key=False)
        server.tier(table)
    (segment,) = (tmp_path / "data").rglob("*.log")
    segment.write_bytes(b"")
    clock.advance(HOUR)
    with serving(tmp_path / "data", clock) as server:
        wait_until(lambda: server.state_after(table, 0) is TieringState.PENDING)


# D27
@pytest.mark.parametrize("primary_key", [True, False])
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.sampled(3)
def test_what_waits_is_what_the_buckets_and_the_lake_snapshot_say(server: Server, primary_key: bool, seed: int) -> None:
    chance = random.Random(seed)
    columns = ("day", "STRING NOT NULL"), ("id", "BIGINT NOT NULL"), ("name", "STRING")
    table = server.client.create_table(
        new_path(),
        TableDescriptor(
            columns=tuple(Column(name, DataType.parse(kind)) for name, kind in columns),
            primary_key=("day", "id") if primary_key else (),
            bucket_keys=("id",),
            partition_keys=("day",),
            num_buckets=3,
            properties={"table.datalake.enabled": "true", "table.datalake.freshness": "1h"},
        ),
    )
    schema = pa.schema(
        [pa.field("day", pa.string(), False), pa.field("id", pa.int64(), False), pa.field("name", pa.string())]
    )
    oldest: int | None = None
    for _ in range(25):
        server.clock.advance(MINUTE)
        days = {values[0] for values in (each.partition_values for each in _buckets(server, table)) if values}
        match chance.randrange(6):
            case 0:
                server.tier(table)
                oldest = None
            case 1:
                server.tier(table, chance.random(), forced=True)
            case 2 if days:
                server.client.drop_partition(table.path, [chance.choice(sorted(days))], drop_untiered=True)
            case _:
                day, count = f"d{chance.randrange(3)}", chance.randrange(1, 20)
                rows = [{"day": day, "id": chance.randrange(50), "name": "n"} for _ in range(count)]
                kind = WriteKind.UPSERT if primary_key else WriteKind.APPEND
                list(server.client.write_rows(table.path, kind, [pa.Table.from_pylist(rows, schema)]))
                oldest = oldest or server.clock.now_ms()
        snapshot = server.client.lake_snapshot(table.path)
        tiered = {} if snapshot is None else snapshot.log_end_offsets
        waiting = sum(each.log_end_offset - tiered.get(each.bucket, 0) for each in _buckets(server, table))
        status = server.status(table)
        assert status.records_waiting == waiting
        if waiting:
            assert status.waiting_since is not None
            assert oldest is not None
            assert oldest <= status.waiting_since <= server.clock.now_ms()
        else:
            assert status.waiting_since is None


def _buckets(server: Server, table: TableInfo) -> list:  # type: ignore[type-arg]
    return list(server.client.list_buckets([table.path])[table.path])


def test_a_status_tells_what_waits_and_when_the_next_round_is_due(server: Server) -> None:  # D27
    table = server.client.create_table(new_path(), descriptor(freshness="1h"))
    created = server.clock.now_ms()
    status = server.status(table)
    assert (status.next_round_time, status.freshness_ms) == (created + HOUR, HOUR)
    server.clock.advance(MINUTE)
    put(server.client, table, {1: "a", 2: "b"})
    server.clock.advance(MINUTE)
    (listed,) = [each for each in server.client.list_tiering_statuses() if each.path == table.path]
    assert (listed.records_waiting, listed.waiting_since) == (2, created + MINUTE)
    assert listed.lag_ms(server.clock.now_ms()) == MINUTE
    server.tier(table)
    status = server.status(table)
    assert (status.records_waiting, status.next_round_time) == (0, server.clock.now_ms() + HOUR)
    server.client.alter_table(table.path, {"table.datalake.freshness": "2h"})
    status = server.status(table)
    assert (status.next_round_time, status.freshness_ms) == (server.clock.now_ms() + 2 * HOUR, 2 * HOUR)
    server.claim(table)
    assert server.status(table).next_round_time is None, "a round runs"


@pytest.mark.slow
def test_a_watcher_hears_of_what_waits(server: Server) -> None:  # D27
    table = new_table(server.client, [1])
    changes = server.client.watch_tiering_statuses([table.path])
    assert next(changes).statuses[0].records_waiting == 1
    put(server.client, table, {2: "b", 3: "c"})
    heard = next(each for each in changes if each.statuses)
    assert heard.statuses[0].records_waiting == 3
    assert heard.statuses[0].freshness_ms == 3 * MINUTE
