"""Many clients at once, and a server that is killed under load: S22, S24, L10, L11."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from crash_load import Worker

from engine_support import ServerProcess, ServerThread, new_table
from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket
from fluss_tiering.model.tiering import Claim, HeartbeatEntry
from waiting import wait_until

WORKERS = 4
SEED_VARIABLE = "FLUSS_TIERING_TEST_SEED"

long = pytest.mark.long


@pytest.mark.system
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("database", "kills"),
    [
        ("sqlite", 1),
        pytest.param("sqlite", 50, marks=long),
        pytest.param("postgresql", 10, marks=[long, pytest.mark.postgres]),
    ],
)
def test_what_was_acknowledged_outlives_kill_9(
    tmp_path: Path, request: pytest.FixtureRequest, database: str, kills: int
) -> None:  # S24, L10, L11, S3, S22
    seed = int(os.environ.get(SEED_VARIABLE) or random.randrange(1 << 32))
    print(f"again with {SEED_VARIABLE}={seed}")  # noqa: T201 - shown when the test fails
    environment = {"FLUSS_TIERING_KEPT_ROUNDS": "100000"}
    if database == "postgresql":
        environment["FLUSS_TIERING_STORE_URL"] = request.getfixturevalue("postgres_url")
        environment["FLUSS_TIERING_LEADER_LEASE"] = "1s"
    process = ServerProcess(tmp_path, **environment).start()
    workers = [Worker(number, seed) for number in range(WORKERS)]
    with TieringClient(process.target) as client:
        for worker in workers:
            worker.prepare(client)
    moments = random.Random(seed)
    for _ in range(kills):
        run_until_killed(process, workers, moments.uniform(0.05, 1.5))
        process.start()
        with TieringClient(process.target) as client:
            wait_until_active(client)
            for worker in workers:
                worker.check(client)
    assert all(worker.steps for worker in workers), "each got something done"
    assert process.stop() == 0


def run_until_killed(process: ServerProcess, workers: list[Worker], seconds: float) -> None:
    stop = threading.Event()
    failures: list[BaseException] = []

    def run(worker: Worker) -> None:
        try:
            worker.run(process.target, stop)
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=run, args=(worker,), daemon=True) for worker in workers]
    before = sum(worker.steps for worker in workers)
    for thread in threads:
        thread.start()
    wait_until(lambda: failures or sum(worker.steps for worker in workers) >= before + len(workers))
    time.sleep(seconds)
    process.kill()
    stop.set()
    for worker in workers:
        # Or it would try again for seconds, and could find the server that is started next.
        worker.client.close()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert not failures, failures


def wait_until_active(client: TieringClient) -> None:
    # On PostgreSQL the killed server's leadership runs out first; reads of the store would be answered before.
    def answers() -> bool:
        try:
            client.list_tables()
        except FlussTieringError:
            return False
        return True

    wait_until(answers)


CLIENTS = 12
HOUR = 3_600_000


def in_parallel(work: Callable[[int], None]) -> None:
    with ThreadPoolExecutor(CLIENTS) as pool:
        for done in [pool.submit(work, number) for number in range(CLIENTS)]:
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
    assert {lease.lease_id for lease in leases} == {f"lease {number}" for number in range(0, CLIENTS, 2)}
    assert all(
        lease.snapshots == {TableBucket(table.table_id, 3): snapshots[TableBucket(table.table_id, 3)]}
        for lease in leases
    )
