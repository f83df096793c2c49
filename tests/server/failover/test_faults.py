"""The table of faults: two real servers and a real PostgreSQL, through networks that can be cut. It prints what it saw.

Each fault is put to two servers that share a data folder, while a driver sends heartbeats for ten rounds and holds a
lease. A server must answer again, no round may fail whose driver lives, and no lease may be lost. What was acknowledged
otherwise is still there, or whoever was told of it is told that it is lost.
"""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from faulty_servers import ROUNDS, Cluster

from engine_support import HOUR, ServerProcess, new_table, put
from fluss_tiering.client import TieringClient, lease_latest_snapshots
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo
from fluss_tiering.model.tiering import Claim, HeartbeatEntry, TieringState
from metrics_support import scrape, value
from needs import needs
from postgres_support import Postgres
from waiting import T, wait_until

pytestmark = pytest.mark.long


@pytest.fixture
@needs("system", "postgres")
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        # Outside of pytest's folders, which another user may not read: see the fixture `postgres`.
        folder = stack.enter_context(TemporaryDirectory(prefix="postgres-of-faults-", ignore_cleanup_errors=True))
        postgres = Postgres(Path(folder))
        stack.callback(postgres.stop)
        yield Cluster(tmp_path, postgres, stack)


def cut(*servers: int) -> Callable[[Cluster], None]:
    def fault(cluster: Cluster) -> None:
        for each in servers:
            cluster.networks[each].cut()
        if len(servers) == 2:
            time.sleep(12)
            for each in servers:
                cluster.networks[each].mend()

    return fault


def kill(cluster: Cluster) -> None:
    cluster.signal(0, signal.SIGKILL)


def move(cluster: Cluster) -> None:
    """The first server gets another address, and clients find it at the old name."""
    first = cluster.servers[0]
    first.kill()
    first.port = 0
    first.start()
    cluster.front.target = first.port
    cluster.front.lose_connections()


def half_open(cluster: Cluster) -> None:
    cluster.front.lose_connections()


def lose_folder(cluster: Cluster) -> None:
    """The folder is gone from its path, as after an unmount, and comes back after a while."""
    away = cluster.data_dir.with_name("away")
    cluster.data_dir.rename(away)
    time.sleep(5)
    away.rename(cluster.data_dir)


def lose_transactions(cluster: Cluster, *, quiet: bool) -> None:  # D9
    """PostgreSQL fails over to a copy that was made before the last lease and the last round.

    Args:
        cluster: The servers.
        quiet: Whether nothing is written until the loss was noticed.
    """
    copy = Path(cluster.postgres.folder).with_name("copy")
    cluster.postgres.copy(copy)
    with TieringClient(cluster.servers[0].target) as client:
        table = new_table(client, [1])
        lease = lease_latest_snapshots(client, "late", [table.path], HOUR)
        (claim,) = client.claim_tables([table.path], "late", lease.attempt_token, "late driver")
    cluster.postgres.fail_over(copy)
    if quiet:
        began = time.monotonic()
        wait_until(lambda: told_of_loss(cluster))
        say(f"noticed {time.monotonic() - began:.1f} s after PostgreSQL was there again")
    # The first write or renewal of the leadership notices the loss. The server then loads its state anew.
    with TieringClient(cluster.target, timeout=5) as client:
        renewed = wait_until(lambda: answer_of(lambda: client.renew_leases({"late": HOUR})))["late"]
    assert isinstance(renewed, FlussTieringError)
    assert renewed.code is ErrorCode.KV_SNAPSHOT_LEASE_NOT_EXIST

    def is_told(client: TieringClient) -> None:
        assert isinstance(claim, Claim)
        entry = HeartbeatEntry(claim.table_id, claim.tiering_epoch, coordinator_epoch=claim.coordinator_epoch)
        assert set(client.heartbeat(tiering=[entry]).tiering_errors) == {claim.table_id}
        # The storage does not depend on the database.
        assert [rows["id"] for rows in scanned(client, table)] == [1]
        assert told_of_loss(cluster)

    cluster.at_the_end.append(is_told)


def told_of_loss(cluster: Cluster) -> bool:
    return any("does not hold what the server wrote last" in each.log_file.read_text() for each in cluster.servers)


def fill_disk(cluster: Cluster) -> None:
    """The disk of the data folder is full for a while, in which rows are written."""
    if not cluster.has_own_disk:
        pytest.skip("needs the right to mount")
    acknowledged: dict[int, str] = {}
    refused: list[FlussTieringError] = []
    names = itertools.count()

    def write(client: TieringClient) -> bool:
        rows = {next(names): "x" * 50_000 for _ in range(20)}
        try:
            put(client, table, rows)
        except FlussTieringError as error:
            refused.append(error)
            return False
        acknowledged.update(rows)
        return True

    with TieringClient(cluster.servers[0].target, timeout=5) as client:
        table = new_table(client)
        assert write(client)
        filler = cluster.disk / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while file.write(b"x" * (1 << 16)):
                pass
        until = time.monotonic() + 5
        while time.monotonic() < until or not refused:
            write(client)
        filler.unlink()
        wait_until(lambda: write(client))
    # What the alert of calls that fail looks at.
    assert any(
        labels["status"] == "INTERNAL" and count
        for labels, count in scrape(cluster.servers[0].metrics_port)["fluss_tiering_rpc_total"]
    )
    say(f"full disk: {len(acknowledged)} rows acknowledged, {len(refused)} writes refused: {refused[-1]}")

    def has_every_row(client: TieringClient) -> None:
        rows = {row["id"]: row["name"] for row in scanned(client, table)}
        assert {key: rows.get(key) for key in acknowledged} == acknowledged

    cluster.at_the_end.append(has_every_row)


def set_clock(ahead_s: int) -> Callable[[Cluster], None]:
    def fault(cluster: Cluster) -> None:  # D3
        cluster.set_clock(ahead_s)
        for server in cluster.servers:
            behind = wait_until(lambda server=server: clock_behind(server))
            assert (behind > 0) is (ahead_s > 0)

    return fault


def clock_behind(server: ServerProcess) -> float:
    """Return what the alert of a clock that was set looks at; 0 while it would not fire."""
    behind = value(scrape(server.metrics_port), "fluss_tiering_clock_behind_seconds")
    return behind if abs(behind) > 60 else 0


def scanned(client: TieringClient, table: TableInfo) -> list[dict[str, object]]:
    with client.scan(table) as scan:
        return [row for batch in scan for row in batch.to_pylist()]


FAULTS: dict[str, Callable[[Cluster], None]] = {
    "leader alone cut from the database": cut(0),
    "standby alone cut from the database": cut(1),
    "both cut from the database for 12 s": cut(0, 1),
    "leader killed": kill,
    "leader suspended for 1 s": lambda cluster: cluster.stop_for(1),
    "leader suspended for 10 s": lambda cluster: cluster.stop_for(10),
    "leader suspended for 60 s": lambda cluster: cluster.stop_for(60),
    "half-open connections": half_open,
    "data folder away for 5 s": lose_folder,
    "data folder full for 5 s": fill_disk,
    "server moved to another address": move,
    "database failed over and lost its last transactions": lambda cluster: lose_transactions(cluster, quiet=False),
    "the same, and nothing is written": lambda cluster: lose_transactions(cluster, quiet=True),
    "clock 130 s ahead": set_clock(130),
    "clock an hour back": set_clock(-3600),
    "clock a year ahead": set_clock(365 * 24 * 3600),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_ends_no_round_and_loses_no_lease(cluster: Cluster, name: str) -> None:
    driver = cluster.begin_rounds()
    began = time.monotonic()
    FAULTS[name](cluster)
    shown = [cluster.gauges()]
    ended = time.monotonic()
    wait_until(lambda: driver.answered[-1] > ended)
    # The longest time without an answer, which is what clients notice.
    wait_until(lambda: driver.answered[-1] > ended + 12)
    times = [each for each in driver.answered if each > began - 1]
    longest = max(later - earlier for earlier, later in itertools.pairwise(times))
    driver.ended.set()
    driver.join(60)
    shown.append(cluster.gauges())
    with TieringClient(cluster.target, timeout=30) as client:
        wait_until(lambda: answers(client))
        for check in cluster.at_the_end:
            check(client)
        rounds = [each for each in client.list_tiering_rounds() if each.lease_id == "X"]
        leases = client.list_leases("X")
    failed = sum(each.state is TieringState.FAILED for each in rounds)
    say(f"| {name} | {longest:.1f} s | {failed} | {1 - len(leases)} | {' '.join(shown)} |")
    assert driver.refused == {}
    assert (failed, len(rounds), len(leases)) == (0, ROUNDS, 1)


def answers(client: TieringClient) -> bool:
    return answer_of(client.list_tables) is not None


def answer_of(call: Callable[[], T]) -> T | None:
    """Return the answer of a call, or None if there was none."""
    try:
        return call()
    except FlussTieringError:
        return None


def say(line: str) -> None:
    print(line)  # noqa: T201 - the table is the result
    if (file := os.environ.get("FAULT_TABLE")) is not None:
        with Path(file).open("a") as table:
            table.write(line + "\n")
