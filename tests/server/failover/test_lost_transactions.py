"""Commits whose answer is lost, and a database that lost what was committed last: a server notices both."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import sqlalchemy as sa
from candidates import Candidate, refused, waits_for_a_lock, write

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.core.store.store import SqlTieringStore
from fluss_tiering.server.failover import election
from fluss_tiering.server.failover import leadership as leadership_module
from fluss_tiering.server.failover.leadership import LeadershipFence
from postgres_support import Postgres
from waiting import wait_until


@pytest.mark.parametrize("committed", [True, False])
def test_a_commit_whose_answer_is_lost_is_settled(
    candidate: Callable[..., Candidate], postgres: Postgres, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:  # L10
    first, store = leading(candidate)
    with answers_lost(monkeypatch, store, lambda: postgres.drop_connections(first.url), committed):
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
    first, store = leading(candidate)
    write(store, 6)

    def lose_the_network() -> None:
        first.clock.now += 100  # for so long that the outcome is no longer asked for
        postgres.drop_connections(first.url)

    with answers_lost(monkeypatch, store, lose_the_network), pytest.raises(FlussTieringError, match="not known"):
        write(store, 7)
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
    first, store = leading(candidate)
    write(store, 6)
    asked = 0

    def refuse(connection: sa.Connection) -> int:
        nonlocal asked
        asked += 1
        if asked < tries:
            postgres.drop_connections(first.url)
        return last_token(connection)

    last_token = election.last_token
    monkeypatch.setattr(election, "last_token", refuse)
    with answers_lost(monkeypatch, store, lambda: postgres.drop_connections(first.url)):
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
    first, store = leading(candidate)
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
    first, store = leading(candidate)
    write(store, 6)
    before = postgres.execute("SELECT token FROM server_transaction", first.url)[0][0]
    write(store, 7)
    if lost == "the answered transaction":
        postgres.execute(f"UPDATE server_transaction SET token = {before}", first.url)
        assert "loads its state anew" in refused(lambda: write(store, 8)).message
    else:

        def lose() -> None:
            if lost == "both":
                postgres.execute(f"UPDATE server_transaction SET token = {before}", first.url)
            postgres.drop_connections(first.url)

        with answers_lost(monkeypatch, store, lose, committed=False), pytest.raises(FlussTieringError) as error:
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
    first, store = leading(candidate)
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
    first, store = leading(candidate)
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


@contextmanager
def answers_lost(
    monkeypatch: pytest.MonkeyPatch, store: SqlTieringStore, cut: Callable[[], object], committed: bool = True
) -> Iterator[None]:
    """Cut the connection of each transaction within its commit, after it was committed or rolled back."""
    dialect = store._database.engine.dialect

    def lose_the_answer(connection) -> None:
        end = type(dialect).do_commit if committed else type(dialect).do_rollback
        end(dialect, connection)
        cut()
        connection.execute("SELECT 1")

    with monkeypatch.context() as patched:
        patched.setattr(dialect, "do_commit", lose_the_answer)
        yield


def leading(candidate: Callable[..., Candidate]) -> tuple[Candidate, SqlTieringStore]:
    """Return a server that leads, and its store."""
    first = candidate("first", lease_s=60)
    assert first.leadership.acquire()
    return first, first.open_store()
