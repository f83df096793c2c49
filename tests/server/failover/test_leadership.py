"""Who leads: the row in PostgreSQL, the deadline in memory, and the fence in each transaction of the store."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa
from candidates import LEASE_S, Candidate, Ticks, let_pass, refused, waits_for_a_lock, write

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.failover import election
from fluss_tiering.server.failover.election import Leader
from fluss_tiering.server.failover.leadership import Leadership
from waiting import WAIT_S, wait_until


def test_one_leads_and_the_next_takes_over_when_it_is_silent(candidate: Callable[..., Candidate]) -> None:
    first, second = candidate("first", lease_s=100), candidate("second", lease_s=100)
    assert first.leadership.acquire()
    assert not second.leadership.acquire()
    assert second.election.leader() == Leader(generation=1, holder_id="first", address="first:1")
    let_pass(second, 60)
    first.leadership.renew()
    let_pass(second, 60)
    assert not second.leadership.acquire(), "it was renewed"
    let_pass(second, 60)
    assert second.election.leader() is None
    assert second.leadership.acquire()
    assert second.leadership.generation == 2
    refused(first.leadership.renew)
    assert not first.leadership.is_valid


def test_a_database_without_a_transaction_has_the_token_0(candidate: Callable[..., Candidate]) -> None:
    first = candidate("first")
    assert first.leadership.acquire()
    assert first.election.renew(1) == 0


def test_a_silent_database_is_given_half_of_the_lease(candidate: Callable[..., Candidate], limits: list[float]) -> None:
    first = candidate("first", lease_s=50)
    assert limits == [30], "the tables are made once"
    assert first.leadership.acquire()
    first.leadership.renew()
    assert limits == [30, 25, 25, 25], "the layout is looked at first"


def test_servers_that_start_at_the_same_time_make_the_tables_one_after_the_other(
    candidate: Callable[..., Candidate],
) -> None:
    first, second = candidate("first"), candidate("second")
    with first.database.engine.begin() as preparing, ThreadPoolExecutor(1) as pool:
        preparing.execute(sa.select(sa.func.pg_advisory_xact_lock(election._CREATE_LOCK)))
        waiting = pool.submit(second.election.prepare)
        wait_until(lambda: waiting.done() or waits_for_a_lock(first))
        assert not waiting.done()
        preparing.rollback()
        waiting.result(WAIT_S)


def test_who_resigns_makes_way_at_once(candidate: Callable[..., Candidate]) -> None:
    first, second = candidate("first"), candidate("second")
    assert first.leadership.acquire()
    first.leadership.resign()
    assert second.leadership.acquire()


def test_a_leadership_that_could_not_be_renewed_refuses_at_once(candidate: Callable[..., Candidate]) -> None:
    first = candidate("first", lease_s=8)
    assert "another server took over" in refused(first.leadership.require).message
    assert not first.leadership.was_given_up
    assert first.leadership.remaining_s == 0
    # Who never led has nothing to resign from.
    first.leadership.resign()
    assert first.leadership.acquire()
    first.leadership.require()
    first.clock.now += 7.9
    first.leadership.require()
    first.clock.now += 0.2
    assert "could not renew" in refused(first.leadership.require).message
    # Nobody took over meanwhile: it may go on.
    first.leadership.renew()
    first.leadership.require()


def test_the_deadline_counts_from_before_the_question() -> None:
    clock = Ticks()

    class SlowRow:
        def acquire(self) -> int | None:
            clock.now += 3
            return 1

        def renew(self, generation: int) -> int | None:
            clock.now += 3
            return 0

        def resign(self, generation: int) -> None: ...

    leadership = Leadership(SlowRow(), 8, clock)
    assert leadership.acquire()
    clock.now += 5.1
    refused(leadership.require)
    leadership.renew()
    clock.now += 4.9
    leadership.require()


def test_who_was_superseded_can_write_nothing(candidate: Callable[..., Candidate]) -> None:  # S24, S22
    first, second = candidate("first"), candidate("second")
    assert first.leadership.acquire()
    before = first.open_store()
    write(before, 1)
    let_pass(second, LEASE_S + 1)
    write(before, 2)  # nobody took over yet: the row is still its own
    assert second.leadership.acquire()
    after = second.open_store()
    refused(lambda: write(before, 3))
    assert after.attempt_token() == 2
    refused(lambda: write(before, 4))
    write(after, 5)
    assert before.attempt_token() == 5
    # Nor may it change the layout.
    refused(first.open_store)
    before.close()
    after.close()


def test_a_take_over_waits_for_the_transaction_that_is_under_way(candidate: Callable[..., Candidate]) -> None:  # S24
    first, second = candidate("first"), candidate("second")
    assert first.leadership.acquire()
    store = first.open_store()
    # It connects now, since PostgreSQL ends a transaction that is idle for 4 s.
    second.election.leader()
    let_pass(second, LEASE_S + 1)
    with store.transaction() as transaction:
        transaction.put_attempt_token(1)
        with second.database.engine.begin() as connection:
            connection.exec_driver_sql("SET LOCAL lock_timeout = '100ms'")
            with pytest.raises(sa.exc.OperationalError, match="lock timeout"):
                connection.exec_driver_sql("UPDATE server_leader SET generation = 2")
        assert second.election.leader() is None
    assert store.attempt_token() == 1
    assert second.leadership.acquire()
    store.close()


def test_who_stands_still_in_a_transaction_holds_up_nobody(candidate: Callable[..., Candidate]) -> None:
    first, second = candidate("first"), candidate("second")
    assert first.leadership.acquire()
    store = first.open_store()
    let_pass(second, LEASE_S + 1)

    def stand_still() -> None:
        with store.transaction() as transaction:
            transaction.put_attempt_token(1)
            wait_until(take_over)
            transaction.put_attempt_token(2)

    def take_over() -> bool:
        try:
            return second.leadership.acquire()
        except FlussTieringError:
            return False

    with pytest.raises(FlussTieringError) as lost:
        stand_still()
    assert lost.value.code is ErrorCode.UNAVAILABLE
    refused(lambda: write(store, 3))
    after = second.open_store()
    assert after.attempt_token() == 0, "the database ended what stood still"
    store.close()
    after.close()
