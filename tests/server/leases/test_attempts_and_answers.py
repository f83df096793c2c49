"""Attempts under lease ids, and what callers, waiters and operators are told about leases."""

from __future__ import annotations

import pytest
from manager_support import Managers
from refusals import refused
from structlog.testing import capture_logs

from engine_support import HOUR, MINUTE, VirtualClock
from fluss_tiering.model.clock import iso_time
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket
from fluss_tiering.model.tiering import LeaseDrop, LeaseOutcome

B0, B1 = TableBucket(1, 0), TableBucket(1, 1)
PARTITIONED = TableBucket(1, 0, partition_id=3)


def refusal(managers: Managers, lease_id: str, attempt_token: int | None) -> FlussTieringError:
    with pytest.raises(FlussTieringError) as refused:
        managers.attempts.require_current(lease_id, attempt_token)
    return refused.value


def test_a_round_runs_under_the_newest_attempt_unless_it_names_one(managers: Managers) -> None:  # L22
    token = managers.acquire("X", HOUR, {B0: 5}).attempt_token
    assert managers.attempts.require_current("X", None) == token
    assert managers.attempts.require_current("X", token) == token


def test_a_superseded_attempt_is_told_by_which_one(managers: Managers) -> None:  # L22
    old = managers.acquire("X", HOUR, {B0: 5}).attempt_token
    managers.acquire("Y", HOUR, {B0: 5})
    new = managers.acquire("X", HOUR, {B0: 5}).attempt_token
    refused = refusal(managers, "X", old)
    assert refused.code is ErrorCode.STALE_ATTEMPT
    assert f"attempt {old} of lease X was superseded by attempt {new}" in refused.message


def test_a_token_that_was_never_given_out_under_the_lease_is_refused(managers: Managers) -> None:  # L22
    first = managers.acquire("X", HOUR, {B0: 5}).attempt_token
    last = managers.acquire("Y", HOUR, {B0: 5}).attempt_token
    for lease_id, token in (("X", last), ("Y", last + 1), ("unknown", last + 1)):
        refused = refusal(managers, lease_id, token)
        assert refused.code is ErrorCode.INVALID_REQUEST
        assert f"attempt token {token} was never given out by this server under lease {lease_id}" in refused.message
    # The attempts of a lease that ended long ago are forgotten, but not which tokens there were.
    assert managers.attempts.require_current("ended long ago", first) == first
    assert managers.attempts.require_current("ended long ago", last) == last
    assert managers.attempts.require_current("of a driver without Airflow", None) is None


@pytest.mark.parametrize("restarted", [False, True])
def test_a_cancelled_attempt_ends_and_the_next_one_begins(managers: Managers, restarted: bool) -> None:  # L22, S25
    old = managers.acquire("X", HOUR, {B0: 5}).attempt_token
    cancelled = managers.acquire("X", HOUR, {B0: 5}).attempt_token
    managers.tiering.cancel("X", cancelled, "the task was cleared")
    if restarted:
        managers.restart()
    for token in (None, cancelled):
        refused = refusal(managers, "X", token)
        assert refused.code is ErrorCode.STALE_ATTEMPT
        assert f"attempt {cancelled} of lease X was cancelled: the task was cleared" in refused.message
    assert "superseded" in refusal(managers, "X", old).message
    assert managers.lease_outcome("X", cancelled) == LeaseOutcome((), "the task was cleared", cancelled)
    following = managers.acquire("X", HOUR, {B0: 5}).attempt_token
    assert managers.attempts.require_current("X", None) == following
    assert managers.lease_outcome("X", None) == LeaseOutcome((), None, following)


def test_a_waiter_sees_the_rounds_of_its_attempt_and_of_newer_ones(managers: Managers) -> None:  # S25
    tables = [managers.add_table(table_id, freshness="0s") for table_id in (1, 2, 3)]
    without = managers.claim(tables[0], "X")
    first = managers.acquire("X", HOUR, {}).attempt_token
    managers.claim(tables[1], "X", first)
    second = managers.acquire("X", HOUR, {}).attempt_token
    managers.claim(tables[2], "X", second)

    def seen(token: int | None) -> set[int]:
        return {each.table_id for each in managers.lease_outcome("X", token).rounds}

    assert without.table_id == 1
    assert (seen(None), seen(first), seen(second)) == ({1, 2, 3}, {2, 3}, {3})
    assert managers.lease_outcome("X", first).newest_attempt_token == second
    assert managers.lease_outcome("nobody's", None) == LeaseOutcome((), None, None)


def test_a_reserved_attempt_is_given_out_once_and_begins_when_the_cluster_has_pinned(  # L10, L22
    managers: Managers, clock: VirtualClock
) -> None:
    old = managers.acquire("X", HOUR, {B0: 5}).attempt_token
    attempt, pinned = managers.leases.reserve("X", {B1: 6})
    assert (attempt.lease_id, attempt.started_time, pinned) == ("X", clock.now_ms(), {B0: 5, B1: 6})
    other, _ = managers.leases.reserve("X", {B1: 6})
    assert old < attempt.attempt_token < other.attempt_token, "although neither is written"
    assert managers.attempts.require_current("X", None) == old
    assert managers.leases.release("X", [B1], old), "nothing has begun yet"
    acquired = managers.leases.acquire("X", HOUR, {B1: 6}, {}, attempt)
    assert acquired.attempt_token == attempt.attempt_token
    managers.restart()
    assert managers.attempts.require_current("X", None) == attempt.attempt_token
    assert managers.leases.release("X", [B0], old) is False
    assert managers.acquire("Y", HOUR, {B0: 5}).attempt_token > other.attempt_token


def test_what_cannot_be_leased_cannot_be_reserved(managers: Managers) -> None:  # L11, L20
    managers.acquire("X", HOUR, {B0: 5})
    with refused(ErrorCode.INVALID_REQUEST, "lease X mixes buckets"):
        managers.leases.reserve("X", {PARTITIONED: 5})
    assert managers.leases.reserve("Y", {PARTITIONED: 5})[1] == {PARTITIONED: 5}
    with managers.store._database.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM leased_snapshots WHERE lease_id = 'X'")
    managers.restart()
    with refused(ErrorCode.CORRUPT_DATA, "lease X cannot be loaded"):
        managers.leases.reserve("X", {B0: 5})


def test_a_lease_is_present_until_it_has_expired_and_for_the_newest_attempt(  # L5, L22
    managers: Managers, clock: VirtualClock
) -> None:
    old = managers.acquire("X", HOUR, {B0: 5}).attempt_token
    new = managers.acquire("X", HOUR, {B0: 5}).attempt_token
    (lease,) = managers.leases.leases("X")
    assert managers.leases.present("X") == managers.leases.present("X", new) == lease
    assert managers.leases.present("X", old) is None
    assert managers.leases.present("unknown") is None
    clock.advance(HOUR)
    assert managers.leases.present("X", new) == lease
    clock.advance(1)
    assert managers.leases.present("X", new) is None
    assert managers.leases.drop("X", new) is LeaseDrop.DROPPED, "until it is dropped, it is there"


def damage(managers: Managers, lease_id: str) -> None:
    """Make a lease one that cannot be loaded, and open the server again."""
    with managers.store._database.engine.begin() as connection:
        connection.exec_driver_sql(f"DELETE FROM leased_snapshots WHERE lease_id = '{lease_id}'")
    managers.restart()


def test_a_lease_says_since_when_it_exists_however_often_it_is_acquired(  # L1, L4
    managers: Managers, clock: VirtualClock
) -> None:
    began = clock.now_ms()
    assert managers.acquire("X", HOUR, {B0: 5}).lease_id == "X"
    managers.acquire("Y", HOUR, {B0: 5})
    clock.advance(MINUTE)
    acquired = managers.acquire("X", HOUR, {B1: 6})
    for _ in range(2):
        (lease,) = managers.leases.leases("X")
        assert (lease.acquired_time, lease.expiration_time) == (began, clock.now_ms() + HOUR)
        assert lease.attempt_token == acquired.attempt_token
        managers.restart()
    assert managers.leases.leases("unknown") == []


def test_a_lease_can_be_renewed_up_to_the_millisecond_of_its_end(managers: Managers, clock: VirtualClock) -> None:  # L5
    end = managers.acquire("X", HOUR, {B0: 5}).expiration_time
    clock.advance(HOUR)
    assert managers.leases.renew([("X", HOUR)]) == [clock.now_ms() + HOUR]
    clock.advance(HOUR + 1)
    (expired,) = managers.leases.renew([("X", HOUR)])
    assert isinstance(expired, FlussTieringError)
    assert expired.code is ErrorCode.KV_SNAPSHOT_LEASE_NOT_EXIST
    assert expired.message.startswith(f"lease X expired at {iso_time(end + HOUR)}: ")


def test_one_lease_that_cannot_be_renewed_keeps_no_other_from_it(managers: Managers) -> None:  # L4, L5
    for lease_id in ("A", "damaged", "Z"):
        managers.acquire(lease_id, HOUR, {B0: 5})
    damage(managers, "damaged")
    asked = ["A", "damaged", "unknown", "Z"]
    first, damaged, unknown, last = managers.leases.renew((lease_id, 2 * HOUR) for lease_id in asked)
    assert first == last == managers.clock.now_ms() + 2 * HOUR
    assert isinstance(damaged, FlussTieringError)
    assert damaged.code is ErrorCode.CORRUPT_DATA
    assert damaged.message.startswith("lease damaged cannot be loaded")
    assert "fluss-tiering leases drop damaged" in damaged.message
    assert isinstance(unknown, FlussTieringError)
    assert unknown.code is ErrorCode.KV_SNAPSHOT_LEASE_NOT_EXIST
    assert unknown.message.startswith("lease unknown does not exist: ")


def test_a_lease_that_cannot_be_loaded_is_in_the_log_when_the_server_starts(managers: Managers) -> None:  # L11
    managers.acquire("X", HOUR, {B0: 5})
    with capture_logs() as sound:
        managers.restart()
    assert sound == []
    with capture_logs() as damaged:
        damage(managers, "X")
    (entry,) = damaged
    assert entry["log_level"] == "error"
    assert entry["reason"] == managers.leases.collection_stopped_reason


def test_snapshots_that_do_not_exist_are_returned_not_pinned_and_in_the_log(managers: Managers) -> None:  # L6, L7
    with capture_logs() as log:
        acquired = managers.leases.acquire("X", HOUR, {B0: 5}, {B1: 4})
    assert acquired.unavailable_snapshots == {B1: 4}
    assert set(managers.leases.pins) == {(B0, 5)}
    (warning,) = (entry for entry in log if entry["log_level"] == "warning")
    assert (warning["lease_id"], warning["unavailable"]) == ("X", [f"snapshot 4 of {B1}"])
    (told,) = (entry for entry in log if entry["log_level"] == "info")
    assert (told["lease_id"], told["snapshots"]) == ("X", 1)
    nothing = managers.leases.acquire("Y", HOUR, {}, {B1: 4})
    assert (nothing.expiration_time, nothing.attempt_token, managers.leases.lease_count) == (0, 2, 1)


def test_a_lease_ends_strictly_after_its_time_and_is_in_the_log(managers: Managers, clock: VirtualClock) -> None:  # L9
    end = managers.acquire("X", HOUR, {B0: 5}).expiration_time
    clock.advance(HOUR)
    assert managers.leases.drop_expired() == []
    clock.advance(1)
    with capture_logs() as log:
        assert managers.leases.drop_expired() == ["X"]
    told = [(entry["log_level"], entry["lease_id"], entry.get("expiration_time")) for entry in log]
    assert told == [("warning", "X", end), ("info", "X", None)]
    assert not set(managers.leases.pins)
    managers.restart()
    assert managers.leases.lease_count == 0
