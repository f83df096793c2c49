"""KV snapshot leases on a clock to turn by hand: seeds L1-L24."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sqlalchemy as sa
from manager_support import Managers, rows_written
from refusals import refused
from structlog.testing import capture_logs

from engine_support import HOUR, MINUTE, VirtualClock
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket
from fluss_tiering.model.tiering import DEFAULT_LEASE_DURATION_MS, KvSnapshotLease, LeaseDrop
from fluss_tiering.server.core.leases.checks import LeaseLimits
from fluss_tiering.server.core.leases.manager import KvSnapshotLeaseManager

B0, B1 = TableBucket(1, 0), TableBucket(1, 1)
OTHER = TableBucket(2, 0)
SIX_HOURS = 6 * HOUR


@pytest.mark.parametrize("change", ["acquire", "renew", "release", "drop", "expire"])
def test_what_cannot_be_persisted_did_not_happen(managers: Managers, clock: VirtualClock, change: str) -> None:
    # L10, L13, L21
    managers.acquire("X", HOUR, {B0: 5, B1: 6})
    before = managers.leases.leases()
    if change == "expire":
        clock.advance(2 * HOUR)
    changes: dict[str, Callable[[KvSnapshotLeaseManager], object]] = {
        "acquire": lambda leases: leases.acquire("X", HOUR, {B0: 7}, {}),
        "renew": lambda leases: leases.renew([("X", 2 * HOUR)]),
        "release": lambda leases: leases.release("X", [B0], None),
        "drop": lambda leases: leases.drop("X", None),
        "expire": KvSnapshotLeaseManager.drop_expired,
    }
    with managers.failing_disk(), refused(ErrorCode.STORAGE, "nothing was changed"):
        changes[change](managers.leases)
    assert managers.leases.leases() == before
    managers.restart()
    assert managers.leases.leases() == before
    changes[change](managers.leases)
    assert managers.leases.leases() != before, "it works again once the disk does"


def test_renewed_every_third_a_lease_outlives_any_round(managers: Managers, clock: VirtualClock) -> None:  # L16
    assert DEFAULT_LEASE_DURATION_MS == SIX_HOURS
    managers.acquire("X", DEFAULT_LEASE_DURATION_MS, {B0: 5})
    for _ in range(30):
        clock.advance(DEFAULT_LEASE_DURATION_MS // 3)
        assert isinstance(managers.leases.renew([("X", DEFAULT_LEASE_DURATION_MS)])[0], int)
        assert managers.leases.drop_expired() == []
    assert set(managers.leases.pins) == {(B0, 5)}


def test_partitioned_and_unpartitioned_buckets_never_mix(managers: Managers) -> None:  # L20
    managers.acquire("X", HOUR, {B0: 5})
    partitioned = TableBucket(1, 0, partition_id=3)
    for lease_id, snapshots in (("X", {partitioned: 5}), ("Y", {B0: 1, partitioned: 1})):
        with pytest.raises(FlussTieringError) as refused:
            managers.acquire(lease_id, HOUR, snapshots)
        assert refused.value.code is ErrorCode.INVALID_REQUEST
        told = f"lease {lease_id} mixes buckets with and without a partition of table 1: "
        assert refused.value.message.startswith(told)
    assert set(managers.leases.pins) == {(B0, 5)}
    managers.acquire("X", HOUR, {TableBucket(1, bucket): 5 for bucket in range(64)})
    assert managers.leases.leased_snapshot_count == 64, "more buckets than before are accepted"
    managers.acquire("X", HOUR, {TableBucket(9, 0, partition_id=3): 5})
    managers.restart()
    assert (TableBucket(9, 0, partition_id=3), 5) in set(managers.leases.pins)


def test_an_older_attempt_releases_and_drops_nothing(managers: Managers) -> None:  # L22
    old = managers.acquire("X", HOUR, {B0: 5}).attempt_token
    new = managers.acquire("X", HOUR, {B0: 5}).attempt_token
    with capture_logs() as log:
        assert managers.leases.release("X", [B0], old) is False
        assert managers.leases.drop("X", old) is LeaseDrop.STALE
    stale = [each for each in log if each["log_level"] == "warning"]
    told = [(each["verb"], each["lease_id"], each["attempt_token"], each["newest_attempt_token"]) for each in stale]
    assert told == [("release", "X", old, new), ("drop", "X", old, new)]
    managers.restart()
    assert managers.leases.release("X", [B0], old) is False, "after a restart too"
    assert set(managers.leases.pins) == {(B0, 5)}
    assert managers.leases.release("X", [B0], new) is True
    assert managers.leases.drop("X", old) is LeaseDrop.STALE, "the token is known longer than the lease"


def test_attempt_tokens_grow_over_leases_and_restarts(managers: Managers) -> None:  # L22
    tokens = [managers.acquire(lease_id, HOUR, {B0: 5}).attempt_token for lease_id in ("X", "Y", "X")]
    managers.leases.drop("X", None)
    managers.leases.drop("Y", None)
    managers.restart()
    tokens.append(managers.acquire("Z", HOUR, {B0: 5}).attempt_token)
    assert tokens == sorted(set(tokens))


def test_attempts_are_forgotten_after_a_week_without_a_lease(managers: Managers, clock: VirtualClock) -> None:  # L22
    managers.acquire("gone", HOUR, {B0: 5})
    managers.acquire("held", 30 * 24 * HOUR, {B0: 5})
    clock.advance(7 * 24 * HOUR)
    managers.leases.drop_expired()
    managers.leases.prune_attempts()
    assert managers.attempts.newest("gone") is not None
    clock.advance(1)
    managers.leases.prune_attempts()
    managers.restart()
    assert managers.attempts.newest("gone") is None
    assert managers.attempts.newest("held") is not None


def test_a_lease_that_cannot_be_loaded_stops_collection(managers: Managers) -> None:  # L11
    for lease_id in ("X", "Y"):
        managers.acquire(lease_id, HOUR, {B0: 5})
    assert managers.leases.collection_stopped_reason is None
    with managers.store._database.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM leased_snapshots WHERE lease_id = 'X'")
    managers.restart()
    assert [lease.lease_id for lease in managers.leases.leases()] == ["Y"]
    reason = managers.leases.collection_stopped_reason
    assert reason is not None
    assert "X: the snapshots that it pins are missing" in reason
    assert "leases drop" in reason
    for call in (
        lambda: managers.acquire("X", HOUR, {B0: 6}),
        lambda: managers.leases.release("X", [B0], None),
        lambda: raise_it(managers.leases.renew([("X", HOUR)])[0]),
    ):
        with refused(ErrorCode.CORRUPT_DATA, "cannot be loaded"):
            call()
    managers.clock.advance(10 * HOUR)
    managers.leases.drop_expired()
    assert managers.leases.collection_stopped_reason is not None, "not even when it would have expired long ago"
    assert managers.leases.drop("X", None) is LeaseDrop.DROPPED
    assert managers.leases.collection_stopped_reason is None
    managers.restart()
    assert managers.leases.collection_stopped_reason is None


def raise_it(answer: object) -> None:
    if isinstance(answer, FlussTieringError):
        raise answer


def test_thousands_of_renewals_are_one_transaction(managers: Managers) -> None:  # L4
    now = managers.clock.now_ms()
    leases = [f"lease {number}" for number in range(1000)]
    with managers.store.transaction() as transaction:
        for number, lease_id in enumerate(leases):
            transaction.put_lease(KvSnapshotLease(lease_id, now, now + HOUR, number, {TableBucket(number, 0): 1}))
    managers.restart()
    committed = []
    sa.event.listen(managers.store._database.engine, "commit", committed.append)
    managers.clock.advance(1000)
    assert managers.leases.renew((lease_id, HOUR) for lease_id in leases) == [managers.clock.now_ms() + HOUR] * 1000
    assert len(committed) == 1
    renewed = managers.leases.leases()
    managers.restart()
    assert managers.leases.leases() == renewed


def test_a_lease_of_a_clock_that_was_ahead_counts_from_now(managers: Managers, clock: VirtualClock) -> None:  # L9, D3
    present = clock.now_ms()
    clock.advance(HOUR)
    managers.acquire("ahead", 2 * HOUR, {B0: 5})
    clock.advance(-HOUR)
    managers.acquire("present", 2 * HOUR, {B0: 5})
    clock.advance(MINUTE)
    managers.restart()
    ahead, sound = managers.leases.leases()
    assert (ahead.acquired_time, ahead.expiration_time) == (present + MINUTE, present + MINUTE + 2 * HOUR)
    assert (sound.acquired_time, sound.expiration_time) == (present, present + 2 * HOUR)
    assert set(managers.leases.pins) == {(B0, 5)}


@pytest.mark.parametrize("pins", [10, 4_000])
def test_a_change_of_few_pins_writes_few_rows_however_many_there_are(managers: Managers, pins: int) -> None:  # D5
    managers.acquire("X", HOUR, {TableBucket(number // 16, number % 16): number for number in range(pins)})
    changes: list[Callable[[], object]] = [
        lambda: managers.leases.release("X", [TableBucket(0, 3)], None),
        lambda: managers.leases.release("X", [TableBucket(0, 3), TableBucket(77, 99)], None),
        lambda: managers.leases.renew([("X", 2 * HOUR)]),
        lambda: managers.acquire("X", HOUR, {TableBucket(0, 5): 12345}),
        lambda: managers.acquire("X", HOUR, {}),
    ]
    for change in changes:
        with rows_written(managers) as rows:
            change()
        assert rows["rows"] <= 5
    (before,) = managers.leases.leases("X")
    assert before.snapshots[TableBucket(0, 5)] == 12345
    managers.restart()
    assert managers.leases.leases("X") == [before]


@pytest.mark.parametrize(
    ("limits", "named"),
    [
        (LeaseLimits(leases=2), "3 leases, and kv-snapshot-lease-max allows 2;"),
        (LeaseLimits(snapshots=4), "5 pinned KV snapshots, and kv-snapshot-lease-max-snapshots allows 4;"),
        (LeaseLimits(lease_ids=2), "3 lease ids, and kv-snapshot-lease-max-ids allows 2;"),
    ],
)
def test_a_server_keeps_no_more_than_its_limits(managers: Managers, limits: LeaseLimits, named: str) -> None:  # D8
    leases = KvSnapshotLeaseManager(managers.clock, managers.store, managers.attempts, limits)
    one = {TableBucket(1, 0): 7}
    for lease_id in ("a", "b"):
        leases.acquire(lease_id, HOUR, {**one, TableBucket(1, 1): 7}, {})
    before = leases.leases()
    with pytest.raises(FlussTieringError) as refused:
        leases.acquire("c", HOUR, one, {})
    assert refused.value.code is ErrorCode.LIMIT_EXCEEDED
    assert refused.value.message.startswith(f"lease c would be more than the server keeps: {named}")
    assert leases.leases() == before
    # Who is inside goes on: with its next attempt, and with fewer or as many pins.
    leases.acquire("a", HOUR, one, {})
    leases.drop("b", None)
    if limits.lease_ids > 2:
        leases.acquire("c", HOUR, one, {})
