"""A server in front of a Fluss cluster with ACLs: what it does with the documented rights, and not without them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cluster_support import ClusterServer, claim, commit, finish, put, snapshot_behind, status, wait_for
from fluss_tables import append, new_table, rows, upsert
from guarded_cluster import TIERING, Acl, GuardedCluster, acls_of
from refusals import refused
from structlog.testing import capture_logs

from call_rights import Use, needed_for
from engine_support import HOUR, descriptor
from fluss_tiering.client import TieringClient
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.table import (
    Column,
    DataType,
    TableDescriptor,
    TableInfo,
    TablePath,
    WriteKind,
)
from fluss_tiering.model.tiering import TieringState
from fluss_tiering.storage.fluss.access import ClusterAccess
from fluss_tiering.storage.fluss.rpc.acls import MissingAcl
from fluss_tiering.storage.fluss.rpc.calls.tables import create_database, create_table
from fluss_tiering.storage.open import open_bucket_scans, open_split_reader
from fluss_tiering.storage.protocol import SplitReader
from waiting import wait_until

TO_TIER = (Use.SERVING, Use.TIERING, Use.READING)
TO_WRITE = (*TO_TIER, Use.WRITING)
ROWS = 5
_NUMBERS = itertools.count()


@dataclass
class Shop:
    """A database of its own with a tiered primary-key table and a tiered log table, made by the administrator."""

    guarded: GuardedCluster
    database: str
    keyed: TableInfo
    logged: TableInfo

    @property
    def paths(self) -> list[TablePath]:
        return [self.keyed.path, self.logged.path]

    def allow(self, uses: Sequence[Use], *others: Acl) -> None:
        """Give the user of the server the rights that are documented for these uses, and others."""
        self.guarded.give(*acls_of(needed_for(uses), [self.database], self.paths), *others)


@pytest.fixture
def shop(guarded: GuardedCluster) -> Shop:
    database = f"acl_shop_{next(_NUMBERS)}"
    guarded.admin.call(create_database(database))
    made = []
    for name, primary_key in (("keyed", True), ("logged", False)):
        made_from = descriptor(primary_key=primary_key, freshness="200ms")
        made.append(new_table(guarded.admin, made_from, name, database))
    return Shop(guarded, database, *made)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


def serve(shop: Shop, folder: Path) -> ClusterServer:
    """Return a server in front of the guarded listener; `with` starts it."""
    user = {"fluss_username": TIERING.username, "fluss_password": TIERING.password}
    return ClusterServer(folder, shop.guarded.cluster.sasl_bootstrap, fluss_start_timeout="20s", **user)


@pytest.fixture
def client(shop: Shop, folder: Path) -> Iterator[TieringClient]:
    shop.allow(TO_TIER)
    with serve(shop, folder) as server, TieringClient(server.target, timeout=60) as connected:
        yield connected


def missing(operation: str, resource_type: str, resource: str) -> str:
    """Return what an error says of an ACL that the server's user lacks."""
    return MissingAcl(operation, resource_type, resource, f"User:{TIERING.username}").text()


def reader_of(client: TieringClient) -> SplitReader:
    return open_split_reader(client.describe_storage(), "not needed", ClusterAccess(TIERING))


def ids_of(batches: Iterator[Any]) -> list[int]:
    return [each for batch in batches for each in batch.records.column("id").to_pylist()]


def known(client: TieringClient, made: TableInfo) -> TableInfo:
    """Return the table as the server tells it, once it has found the table."""
    wait_until(lambda: client.list_tiering_statuses(made.path))
    (found,) = client.get_tables([made.path])
    return found


def tier(client: TieringClient, found: TableInfo) -> None:
    """Do a round as a driver does: wait until the table is due, lease, read, commit, and end the lease."""
    (bucket,) = client.list_buckets([found.path])[found.path]
    snapshots = {}
    if found.has_primary_key:
        snapshot = snapshot_behind(client, found, ROWS)
        snapshots = {snapshot.bucket: snapshot.snapshot_id}
    lease_id = f"round of {found.path}"
    assert client.acquire_lease(lease_id, HOUR, snapshots, allow_empty=True).unavailable_snapshots == {}
    wait_for(client, found, TieringState.PENDING)
    held = claim(client, found, lease_id)
    reader = reader_of(client)
    if snapshots:
        ((bucket_of_it, snapshot_id),) = snapshots.items()
        (snapshot,) = client.kv_snapshot_metadata([(bucket_of_it, snapshot_id)])
        assert sum(each.num_rows for each in reader.read_kv_snapshot(found, snapshot, None, None)) >= ROWS
    log = reader.read_log(found, bucket.bucket, bucket.log_start_offset, bucket.log_end_offset)
    assert len(ids_of(log)) == bucket.log_end_offset
    commit(client, found, held)
    client.renew_leases({lease_id: HOUR})
    finish(client, held)
    client.drop_lease(lease_id)


def fill(shop: Shop) -> None:
    upsert(shop.guarded.admin, shop.keyed, rows(0, ROWS))
    append(shop.guarded.admin, shop.logged, rows(0, ROWS), compression="ZSTD")


def test_rounds_and_scans_need_the_rights_to_tier(shop: Shop, client: TieringClient) -> None:
    fill(shop)
    for made in (shop.keyed, shop.logged):
        found = known(client, made)
        tier(client, found)
        assert client.lake_snapshot(found.path) is not None
    with client.scan(shop.keyed.path) as scan:
        assert pa.Table.from_batches(scan, schema=scan.schema).num_rows == ROWS


def test_nothing_else_is_allowed_to_who_may_tier(shop: Shop, client: TieringClient) -> None:
    path = shop.keyed.path
    found = known(client, shop.keyed)
    with refused(ErrorCode.AUTHORIZATION, missing("WRITE", "TABLE", str(path))):
        put(client, found, 1)
    with refused(ErrorCode.AUTHORIZATION, missing("CREATE", "DATABASE", shop.database)):
        client.create_table(TablePath(shop.database, "other"), descriptor())
    with refused(ErrorCode.AUTHORIZATION, missing("ALTER", "TABLE", str(path))):
        client.alter_table(path, {"table.datalake.freshness": "7min"}, [])
    with refused(ErrorCode.AUTHORIZATION, missing("DROP", "TABLE", str(path))):
        client.drop_table(path, drop_untiered=True)


def test_a_database_that_the_user_does_not_see(shop: Shop, client: TieringClient) -> None:
    hidden, new = f"{shop.database}_hidden", f"{shop.database}_new"
    shop.guarded.admin.call(create_database(hidden))
    for database in (hidden, new):
        # Whether there is a database is not told to who may not see it.
        with refused(ErrorCode.AUTHORIZATION, missing("CREATE", "DATABASE", database)):
            client.create_table(TablePath(database, "other"), descriptor())
    shop.allow(TO_TIER, Acl("CREATE", "DATABASE", hidden), Acl("CREATE", "DATABASE", new))
    client.create_table(TablePath(hidden, "other"), descriptor())
    with refused(ErrorCode.AUTHORIZATION, missing("CREATE", "CLUSTER", "")):
        client.create_table(TablePath(new, "other"), descriptor())


def test_rights_to_write_and_to_define(shop: Shop, client: TieringClient) -> None:
    shop.allow([*TO_WRITE, Use.DEFINING])
    for made in (shop.keyed, shop.logged):
        put(client, known(client, made), ROWS)
    days = TablePath(f"{shop.database}_made", "days")
    columns = (*descriptor().columns, Column("day", DataType.parse("STRING NOT NULL")))
    client.create_table(days, TableDescriptor(columns, partition_keys=("day",), num_buckets=1))
    # Of the new table, the user may only do what CREATE on the cluster includes.
    with refused(ErrorCode.AUTHORIZATION, missing("WRITE", "TABLE", str(days))):
        write_day(client, days, columns)
    shop.guarded.give(*acls_of(needed_for([*TO_WRITE, Use.DEFINING]), [shop.database], [*shop.paths, days]))
    write_day(client, days, columns)
    client.drop_partition(days, ["today"], drop_untiered=True)
    client.alter_table(days, {"table.datalake.freshness": "7min"}, [])
    client.drop_table(days, drop_untiered=True)


def write_day(client: TieringClient, path: TablePath, columns: Sequence[Column]) -> None:
    batch = pa.table({"id": [1], "name": ["one"], "day": ["today"]}, schema=arrow_schema(tuple(columns)))
    assert list(client.write_rows(path, WriteKind.APPEND, [batch])) == [1]


def test_a_server_does_not_start_without_describe_on_fluss(shop: Shop, folder: Path) -> None:
    shop.guarded.give(*(each for each in acls_of(needed_for(TO_TIER), [shop.database]) if each.resource != "fluss"))
    with refused(ErrorCode.AUTHORIZATION, missing("DESCRIBE", "DATABASE", "fluss")), serve(shop, folder):
        pass


def test_a_table_without_read_fails_alone(shop: Shop, client: TieringClient) -> None:
    fill(shop)
    keyed, logged = known(client, shop.keyed), known(client, shop.logged)
    snapshot = snapshot_behind(client, keyed, ROWS)
    shop.guarded.give(*acls_of(needed_for(TO_TIER), [shop.database], [logged.path]))
    without_read = missing("READ", "TABLE", str(keyed.path))
    with refused(ErrorCode.AUTHORIZATION, without_read):
        client.acquire_lease("no right", HOUR, {snapshot.bucket: snapshot.snapshot_id})
    with refused(ErrorCode.AUTHORIZATION, without_read), client.scan(keyed.path) as scan:
        list(scan)
    (bucket,) = client.list_buckets([keyed.path])[keyed.path]
    with refused(ErrorCode.AUTHORIZATION, without_read):
        ids_of(reader_of(client).read_log(keyed, bucket.bucket, 0, bucket.log_end_offset))
    tier(client, logged)


def test_read_alone_is_enough_for_who_reads_rows(shop: Shop, client: TieringClient) -> None:
    fill(shop)
    keyed = known(client, shop.keyed)
    snapshot = snapshot_behind(client, keyed, ROWS)
    description = client.describe_storage()
    (snapshot,) = client.kv_snapshot_metadata([(snapshot.bucket, snapshot.snapshot_id)])
    shop.guarded.give(*acls_of(needed_for([Use.READING]), [], [keyed.path]))
    reader = reader_of(client)
    assert ids_of(reader.read_log(keyed, snapshot.bucket, 0, ROWS)) == list(range(ROWS))
    assert sum(each.num_rows for each in reader.read_kv_snapshot(keyed, snapshot, None, None)) == ROWS
    if shop.guarded.cluster.version != "0.9.1":
        scans = open_bucket_scans(description, ClusterAccess(TIERING))
        assert scans is not None
        assert sum(each.num_rows for each in scans.open(keyed, snapshot.bucket)) == ROWS


def test_a_right_that_is_taken_away_takes_no_state_away(shop: Shop, folder: Path) -> None:
    fill(shop)
    path = shop.logged.path
    hidden = missing("DESCRIBE", "TABLE", str(path))
    shop.allow(TO_TIER)
    with (
        capture_logs() as log,
        serve(shop, folder) as server,
        TieringClient(server.target, timeout=60) as client,
    ):
        tier(client, known(client, shop.logged))
        (before,) = client.list_tiering_rounds(path)
        shop.guarded.give(*acls_of(needed_for([Use.SERVING]), [], []))
        wait_until(lambda: [each for each in log if each.get("why", "").startswith(hidden)])
        (said,) = [each for each in log if each.get("why", "").startswith(hidden)]
        assert (said["event"], said["table"], said["code"]) == ("table is not tiered", str(path), "AUTHORIZATION")
        with refused(ErrorCode.AUTHORIZATION, hidden):
            client.get_tables([path])
        assert client.list_tables(shop.database) == []
        assert status(client, shop.logged).tiering_epoch >= before.tiering_epoch
    # A server that has not seen the table yet keeps its state, too.
    with (
        capture_logs() as log,
        serve(shop, folder) as server,
        TieringClient(server.target, timeout=60) as client,
    ):
        wait_until(lambda: [each for each in log if each.get("why", "").startswith(hidden)])
        for _ in range(3):
            server.run(server.backend.discovery.run_once())
        # The backlogs of the other tables are counted.
        server.run(server.backend.log_ends.run_once())
        assert client.list_tiering_rounds(path)[-1] == before
        shop.allow(TO_TIER)
        wait_until(lambda: client.list_tables(shop.database))
        tier(client, known(client, shop.logged))
        assert client.list_tiering_rounds(path)[0].tiering_epoch > before.tiering_epoch


def test_a_hidden_table_that_the_coordinator_hands_out(shop: Shop, folder: Path) -> None:
    hidden = TablePath(f"{shop.database}_hidden", "table")
    shop.allow(TO_TIER)
    with capture_logs() as log, serve(shop, folder):
        shop.guarded.admin.call(create_database(hidden.database))
        shop.guarded.admin.call(create_table(hidden, descriptor(freshness="200ms")))
        event = "table handed out by the cluster cannot be tiered"
        said = wait_until(lambda: [each for each in log if each["event"] == event and each["table"] == str(hidden)])
        assert said[0]["why"].startswith(missing("DESCRIBE", "TABLE", str(hidden)))


def test_a_table_that_is_dropped_is_not_taken_for_a_hidden_one(shop: Shop, client: TieringClient) -> None:
    path = shop.keyed.path
    known(client, shop.keyed)
    shop.guarded.java.drop(path)
    wait_until(lambda: path not in {each.path for each in client.list_tiering_statuses()})
    with refused(ErrorCode.TABLE_NOT_EXIST):
        client.get_tables([path])
