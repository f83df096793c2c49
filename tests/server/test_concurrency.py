"""Many clients at once, and a server that is killed in the middle: seeds S22, S24, L10, L11."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engine_support import ServerThread, new_table
from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket
from fluss_tiering.model.tiering import Claim, HeartbeatEntry

WORKERS = 12
HOUR = 3_600_000


def in_parallel(work: Callable[[int], None]) -> None:
    with ThreadPoolExecutor(WORKERS) as pool:
        for done in [pool.submit(work, number) for number in range(WORKERS)]:
            done.result(60)


@pytest.mark.slow
def test_no_two_workers_hold_the_same_round(tmp_path: Path) -> None:  # S22, S7
    held: Counter[tuple[int, int]] = Counter()
    with ServerThread(tmp_path / "data") as running, TieringClient(running.target) as client:
        tables = [new_table(client, freshness="0s") for _ in range(4)]
        until = time.monotonic() + 3

        def work(number: int) -> None:
            with TieringClient(running.target) as worker:
                finished: list[HeartbeatEntry] = []
                while time.monotonic() < until:
                    answer = worker.heartbeat(finished=finished, request_table=True, driver=f"worker {number}")
                    assert not answer.finished_errors
                    finished = []
                    if answer.claim is not None:
                        held[answer.claim.table_id, answer.claim.tiering_epoch] += 1
                        finished = [HeartbeatEntry(answer.claim.table_id, answer.claim.tiering_epoch)]

        in_parallel(work)
        epochs = {status.table_id: status.tiering_epoch for status in client.list_tiering_statuses()}
    assert set(held.values()) == {1}
    assert {table.table_id for table in tables} == {table_id for table_id, _ in held}
    assert all(epoch <= epochs[table_id] for table_id, epoch in held)


def test_of_many_claims_by_name_one_wins(tmp_path: Path) -> None:  # S22
    with ServerThread(tmp_path / "data") as running, TieringClient(running.target) as client:
        table = new_table(client)
        answers: list[Claim | FlussTieringError] = []

        def work(number: int) -> None:
            with TieringClient(running.target) as worker:
                answers.extend(worker.claim_tables([table.path], f"lease {number}", None, f"worker {number}"))

        in_parallel(work)
    assert sum(isinstance(answer, Claim) for answer in answers) == 1
    assert {answer.code for answer in answers if isinstance(answer, FlussTieringError)} == {
        ErrorCode.TABLE_BEING_TIERED
    }


@pytest.mark.slow
def test_leases_under_concurrent_calls(tmp_path: Path) -> None:  # S24, L21
    with ServerThread(tmp_path / "data") as running, TieringClient(running.target) as client:
        table = new_table(client, range(20), num_buckets=4)
        snapshots = {each.bucket: each.snapshot_id for each in client.take_kv_snapshots([table.path])[table.table_id]}
        tokens: list[int] = []

        def work(number: int) -> None:
            with TieringClient(running.target) as worker:
                for _ in range(10):
                    acquired = worker.acquire_lease(f"lease {number}", HOUR, snapshots)
                    tokens.append(acquired.attempt_token)
                    assert worker.release_lease(f"lease {number}", list(snapshots)[:3], attempt_token=tokens[-1]) in (
                        True,
                        False,
                    )
                if number % 2:
                    worker.drop_lease(f"lease {number}")

        in_parallel(work)
        leases = client.list_leases()
    assert len(set(tokens)) == len(tokens)
    assert {lease.lease_id for lease in leases} == {f"lease {number}" for number in range(0, WORKERS, 2)}
    assert all(
        lease.snapshots == {TableBucket(table.table_id, 3): snapshots[TableBucket(table.table_id, 3)]}
        for lease in leases
    )
