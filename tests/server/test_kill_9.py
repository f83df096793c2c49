"""kill -9 of a server under load, again and again: acknowledged changes are complete, and no change is half made."""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path

import pytest
from crash_load import Worker

from engine_support import ServerProcess
from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import FlussTieringError
from waiting import wait_until

WORKERS = 4
SEED_VARIABLE = "FLUSS_TIERING_TEST_SEED"

long = pytest.mark.long


@pytest.mark.system
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("database", "kills"),
    [
        ("sqlite", 2),
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
