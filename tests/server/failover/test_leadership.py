"""Who leads: the row in PostgreSQL, the deadline in memory, and the fence in each transaction of the store."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager

import pytest
import sqlalchemy as sa

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.failover import election
from fluss_tiering.server.failover import leadership as leadership_module
from fluss_tiering.server.failover.election import Election, Leader
from fluss_tiering.server.failover.leadership import Leadership, LeadershipFence
from fluss_tiering.server.store.database import Database
from fluss_tiering.server.store.store import SqlTieringStore
from postgres_support import Postgres
from waiting import WAIT_S, wait_until

LEASE_S = 0.4


class Ticks:
    """A monotonic clock to turn by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


class Candidate:
    """A server's hand on the row, with a store behind its fence."""

    def __init__(self, url: str, name: str, lease_s: float = LEASE_S) -> None:
        self.url = url
        self.clock = Ticks()
        self.database = Database.postgresql(url)
        self.election = Election(self.database, name, f"{name}:1", lease_s)
        self.election.prepare()
        self.leadership = Leadership(self.election, lease_s, self.clock)

    def open_store(self) -> SqlTieringStore:
        return SqlTieringStore.open(self.url, LeadershipFence(self.leadership, self.database))


@pytest.fixture
def candidate(postgres_url: str) -> Callable[..., Candidate]:
    made = []

    def make(name: str, **options: float) -> Candidate:
        made.append(Candidate(postgres_url, name, **options))
        return made[-1]

    yield make
    for each in made:
        each.election.close()


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time limits that the calls of the database had."""
    noted: list[float] = []
    limit = Database.time_limit

    def note(database: Database, seconds: float) -> AbstractContextManager[None]:
        noted.append(seconds)
        return limit(database, seconds)

    monkeypatch.setattr(Database, "time_limit", note)
    return noted


def let_pass(candidate: Candidate, seconds: float) -> None:
    """Let the leader's row grow older, which is all that the database sees of the time."""
    with candidate.database.engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE server_leader SET valid_until = valid_until - interval '{seconds} s'")


def write(store: SqlTieringStore, token: int) -> None:
    with store.transaction() as transaction:
        transaction.put_attempt_token(token)


def refused(call: Callable[[], object]) -> FlussTieringError:
    with pytest.raises(FlussTieringError) as error:
        call()
    assert error.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    return error.value


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
    assert limits == [30, 25, 25]


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
    first, second = candidate("first", lease_s=60), candidate("second")
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
    first, second = candidate("first"), candidate("second", lease_s=60)
    assert first.leadership.acquire()
    before = first.open_store()
    write(before, 1)
    time.sleep(LEASE_S * 1.2)
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
    with store.transaction() as transaction:
        transaction.put_attempt_token(1)
        time.sleep(LEASE_S * 1.2)
        with second.database.engine.begin() as connection:
            connection.exec_driver_sql("SET LOCAL lock_timeout = '100ms'")
            with pytest.raises(sa.exc.OperationalError, match="lock timeout"):
                connection.exec_driver_sql("UPDATE server_leader SET generation = 2")
        assert second.election.leader() is None
    assert store.attempt_token() == 1
    assert second.leadership.acquire()
    store.close()


def test_who_stands_still_in_a_transaction_holds_up_nobody(candidate: Callable[..., Candidate]) -> None:
    first, second = candidate("first"), candidate("second", lease_s=60)
    assert first.leadership.acquire()
    store = first.open_store()

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


@pytest.mark.parametrize("committed", [True, False])
def test_a_commit_whose_answer_is_lost_is_settled(
    candidate: Callable[..., Candidate], postgres: Postgres, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:  # L10
    first = candidate("first", lease_s=60)
    assert first.leadership.acquire()
    store = first.open_store()
    dialect = store._database.engine.dialect
    commit = type(dialect).do_commit

    def lose_the_answer(connection) -> None:
        if committed:
            commit(dialect, connection)
        postgres.drop_connections(first.url)
        connection.execute("SELECT 1")

    with monkeypatch.context() as patched:
        patched.setattr(dialect, "do_commit", lose_the_answer)
        if committed:
            write(store, 7)
        else:
            with pytest.raises(FlussTieringError) as lost:
                write(store, 7)
            assert lost.value.code is ErrorCode.UNAVAILABLE
    assert store.attempt_token() == (7 if committed else 0)
    write(store, 8)
    store.close()


@pytest.mark.parametrize("noticed_by", ["the next transaction", "a renewal"])
def test_a_commit_that_cannot_be_settled_ends_a_server_whose_memory_is_behind(
    candidate: Callable[..., Candidate], postgres: Postgres, monkeypatch: pytest.MonkeyPatch, noticed_by: str
) -> None:  # L10
    first = candidate("first", lease_s=60)
    assert first.leadership.acquire()
    store = first.open_store()
    write(store, 6)
    dialect = store._database.engine.dialect
    commit = type(dialect).do_commit

    def lose_the_answer_and_the_network(connection) -> None:
        commit(dialect, connection)
        first.clock.now += 100  # for so long that the outcome is no longer asked for
        postgres.drop_connections(first.url)
        connection.execute("SELECT 1")

    with monkeypatch.context() as patched:
        patched.setattr(dialect, "do_commit", lose_the_answer_and_the_network)
        with pytest.raises(FlussTieringError) as lost:
            write(store, 7)
        assert "not known" in lost.value.message
    first.clock.now -= 100
    notices = first.leadership.renew if noticed_by == "a renewal" else lambda: write(store, 8)
    assert "loads its state anew" in refused(notices).message
    assert first.leadership.was_given_up
    refused(first.leadership.require)
    refused(lambda: write(store, 8))
    assert store.attempt_token() == 7
    first.leadership.resign()
    assert first.leadership.acquire()
    again = first.open_store()
    write(again, 9)
    assert again.attempt_token() == 9
    store.close()
    again.close()


@pytest.mark.parametrize("tries", [2, 20])
def test_the_outcome_of_a_commit_is_asked_for_until_the_database_answers(  # L10
    candidate: Callable[..., Candidate], postgres: Postgres, monkeypatch: pytest.MonkeyPatch, tries: int
) -> None:
    monkeypatch.setattr(leadership_module, "_SETTLE_PAUSE_S", 0.01)
    first = candidate("first", lease_s=60)
    assert first.leadership.acquire()
    store = first.open_store()
    write(store, 6)
    dialect = store._database.engine.dialect
    commit = type(dialect).do_commit
    asked = 0

    def refuse(connection: sa.Connection) -> int:
        nonlocal asked
        asked += 1
        if asked < tries:
            postgres.drop_connections(first.url)
        return last_token(connection)

    def lose_the_answer(connection) -> None:
        commit(dialect, connection)
        postgres.drop_connections(first.url)
        connection.execute("SELECT 1")

    last_token = election.last_token
    with monkeypatch.context() as patched:
        patched.setattr(dialect, "do_commit", lose_the_answer)
        patched.setattr(election, "last_token", refuse)
        if tries == 2:
            write(store, 7)
        else:
            with pytest.raises(FlussTieringError, match="whether the change was made is not known") as unknown:
                write(store, 7)
            assert unknown.value.code is ErrorCode.UNAVAILABLE
    assert asked == min(tries, 10)
    assert store.attempt_token() == 7
    assert first.leadership.is_valid
    store.close()


def test_a_database_that_does_not_tell_the_outcome_is_asked_for_a_while_only(  # L10
    candidate: Callable[..., Candidate], limits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leadership_module, "_SETTLE_PAUSE_S", 0.01)
    monkeypatch.setattr(leadership_module, "_SETTLE_LIMIT_S", 0.2)
    monkeypatch.setattr(leadership_module, "_SETTLE_ATTEMPTS", 2)
    first = candidate("first", lease_s=60)
    assert first.leadership.acquire()
    store = first.open_store()
    write(store, 6)
    fence = LeadershipFence(first.leadership, first.database)
    other = sa.create_engine(first.database.engine.url, poolclass=sa.NullPool)
    with other.begin() as holding:
        holding.exec_driver_sql("UPDATE server_transaction SET token = 1")
        limits.clear()
        with pytest.raises(FlussTieringError, match="whether the change was made is not known"):
            fence.was_committed("7")
    assert limits == [0.2, 0.2]
    store.close()


@pytest.mark.parametrize("lost", ["the answered transaction", "the unanswered one", "both"])
def test_a_database_that_lost_transactions_is_noticed(
    candidate: Callable[..., Candidate], postgres: Postgres, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:  # D9
    """PostgreSQL fails over to a copy that was behind. Another test does it for real, which takes longer."""
    first = candidate("first", lease_s=60)
    assert first.leadership.acquire()
    store = first.open_store()
    write(store, 6)
    before = postgres.execute("SELECT token FROM server_transaction", first.url)[0][0]
    write(store, 7)
    if lost == "the answered transaction":
        postgres.execute(f"UPDATE server_transaction SET token = {before}", first.url)
        assert "loads its state anew" in refused(lambda: write(store, 8)).message
    else:
        dialect = store._database.engine.dialect

        def lose(connection) -> None:
            type(dialect).do_rollback(dialect, connection)
            if lost == "both":
                postgres.execute(f"UPDATE server_transaction SET token = {before}", first.url)
            postgres.drop_connections(first.url)
            connection.execute("SELECT 1")

        with monkeypatch.context() as patched:
            patched.setattr(dialect, "do_commit", lose)
            with pytest.raises(FlussTieringError) as error:
                write(store, 8)
        expected = ErrorCode.NOT_LEADER_OR_FOLLOWER if lost == "both" else ErrorCode.UNAVAILABLE
        assert error.value.code is expected
    if lost == "the unanswered one":
        write(store, 9)
        assert not first.leadership.was_given_up
    else:
        assert first.leadership.was_given_up
    store.close()


def test_a_renewal_notices_that_the_database_lost_transactions(
    candidate: Callable[..., Candidate], postgres: Postgres
) -> None:  # D9
    first = candidate("first", lease_s=60)
    assert first.leadership.acquire()
    store = first.open_store()
    tokens = []
    for number in range(3):
        first.leadership.renew()
        write(store, number)
        tokens += postgres.execute("SELECT token FROM server_transaction", first.url)[0]
    first.leadership.renew()
    postgres.execute(f"UPDATE server_transaction SET token = {tokens[1]}", first.url)
    first.clock.now += 30
    before = first.leadership.remaining_s
    assert "loads its state anew" in refused(first.leadership.renew).message
    assert first.leadership.was_given_up
    assert first.leadership.remaining_s == before, "what the database lost is not acknowledged for longer"
    # In the next leadership the database is right, whatever it holds.
    first.leadership.resign()
    assert first.leadership.acquire()
    first.leadership.renew()
    again = first.open_store()
    write(again, 4)
    first.leadership.renew()
    store.close()
    again.close()


@pytest.mark.parametrize("renewed", ["before the commit", "before the answer", "after an error", "while another began"])
def test_a_renewal_beside_a_transaction_takes_nothing_for_lost(
    candidate: Callable[..., Candidate], monkeypatch: pytest.MonkeyPatch, renewed: str
) -> None:  # D9
    first = candidate("first", lease_s=60)
    assert first.leadership.acquire()
    store = first.open_store()
    write(store, 1)
    dialect = store._database.engine.dialect
    commit = type(dialect).do_commit

    def renew_before_the_answer(connection) -> None:
        commit(dialect, connection)
        first.leadership.renew()

    if renewed == "before the commit":
        with store.transaction() as transaction:
            transaction.put_attempt_token(2)
            # The renewal waits for the transaction, but has looked at the tokens before.
            renewal = threading.Thread(target=first.leadership.renew)
            renewal.start()
            wait_until(lambda: waits_for_a_lock(first))
        renewal.join(60)
    elif renewed == "before the answer":
        with monkeypatch.context() as patched:
            patched.setattr(dialect, "do_commit", renew_before_the_answer)
            write(store, 2)
    elif renewed == "after an error":
        with pytest.raises(ZeroDivisionError), store.transaction() as transaction:
            transaction.put_attempt_token(1 // 0)
    else:
        renew = first.election.renew

        def answered_late(generation: int) -> int | None:
            found = renew(generation)
            write(store, 2)
            write(store, 3)
            return found

        with monkeypatch.context() as patched:
            patched.setattr(first.election, "renew", answered_late)
            first.leadership.renew()
    first.leadership.renew()
    assert first.leadership.is_valid
    write(store, 4)
    assert store.attempt_token() == 4
    store.close()


def waits_for_a_lock(candidate: Candidate) -> bool:
    with candidate.database.engine.connect() as connection:
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return bool(connection.exec_driver_sql(waiting).scalar())
