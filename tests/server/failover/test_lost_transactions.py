"""Commits whose answer is lost, and a database that lost what was committed last: a server notices both."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa
from candidates import Candidate, refused, waits_for_a_lock, write

from engine_support import HOUR, ServerThread, new_table
from fluss_tiering.client import TieringClient, lease_latest_snapshots
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.tiering import Claim, HeartbeatEntry
from fluss_tiering.server.core.store.store import SqlTieringStore
from fluss_tiering.server.failover import election
from fluss_tiering.server.failover import leadership as leadership_module
from fluss_tiering.server.failover.leadership import LeadershipFence
from postgres_support import Postgres
from waiting import wait_until


def test_a_server_that_only_renews_its_leadership_notices_it(
    tmp_path: Path, postgres_url: str, postgres: Postgres
) -> None:  # D9
    """The rows are put back as they were. Among the faults PostgreSQL really fails over, which takes longer."""
    with (
        ServerThread(tmp_path / "data", store_url=postgres_url, leader_lease=4000) as running,
        TieringClient(running.target, timeout=5) as client,
    ):
        kept, lost = new_table(client, [1]), new_table(client, [2])
        lease_latest_snapshots(client, "kept", [kept.path], HOUR)
        (going_on,) = client.claim_tables([kept.path], "kept", None, "driver")
        # Nothing is written by itself from here on: no table becomes due for minutes.
        before = rows_of(postgres, postgres_url)
        lease_latest_snapshots(client, "lost", [lost.path], HOUR)
        (forgotten,) = client.claim_tables([lost.path], "lost", None, "driver")
        assert [each.lease_id for each in client.list_leases()] == ["kept", "lost"]
        put_back(postgres, postgres_url, before)

        wait_until(lambda: leases_of(client) == ["kept"])
        errors = client.heartbeat(tiering=[entry_of(going_on), entry_of(forgotten)]).tiering_errors
        assert set(errors) == {lost.table_id}, "the other round goes on"
        (renewed,) = client.renew_leases({"lost": HOUR}).values()
        assert isinstance(renewed, FlussTieringError)
        assert renewed.code is ErrorCode.KV_SNAPSHOT_LEASE_NOT_EXIST


@pytest.mark.parametrize("committed", [True, False])
def test_a_commit_whose_answer_is_lost_is_settled(
    candidate: Callable[..., Candidate], postgres: Postgres, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:  # L10
    first, store = leading(candidate)
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
    first, store = leading(candidate)
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
    first, store = leading(candidate)
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


def leading(candidate: Callable[..., Candidate]) -> tuple[Candidate, SqlTieringStore]:
    """Return a server that leads, and its store."""
    first = candidate("first", lease_s=60)
    assert first.leadership.acquire()
    return first, first.open_store()


def rows_of(postgres: Postgres, url: str) -> dict[str, list[tuple[object, ...]]]:
    """Return the rows of every table of the store except the leader's."""
    tables = postgres.execute(
        "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'server_leader'", url
    )
    return {name: postgres.execute(f"SELECT * FROM {name}", url) for (name,) in tables}


def put_back(postgres: Postgres, url: str, rows: dict[str, list[tuple[object, ...]]]) -> None:
    """Give tables the rows that they had, in one transaction."""
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"), poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.exec_driver_sql("SET LOCAL session_replication_role = replica")  # keys refer to other tables' rows
        for name, was in rows.items():
            connection.exec_driver_sql(f"DELETE FROM {name}")
            for row in was:
                values = ", ".join(["%s"] * len(row))
                connection.exec_driver_sql(f"INSERT INTO {name} VALUES ({values})", row)


def leases_of(client: TieringClient) -> list[str] | None:
    """Return the ids of the leases; None while no server answers."""
    try:
        return [each.lease_id for each in client.list_leases()]
    except FlussTieringError:
        return None


def entry_of(claim: Claim | FlussTieringError) -> HeartbeatEntry:
    assert isinstance(claim, Claim)
    return HeartbeatEntry(claim.table_id, claim.tiering_epoch, coordinator_epoch=claim.coordinator_epoch)
