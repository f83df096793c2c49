"""A database that lost what was committed last: a server that writes nothing notices it too."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa

from engine_support import HOUR, ServerThread, new_table
from fluss_tiering.client import TieringClient, lease_latest_snapshots
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.tiering import Claim, HeartbeatEntry
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
