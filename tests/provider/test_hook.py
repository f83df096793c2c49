"""The hook and its connection."""

from __future__ import annotations

import json
import time

import pytest
from airflow.sdk import BaseHook
from airflow_names import AIRFLOW
from provider_support import require_unusable
from refusals import refused

from airflow_provider_fluss.hooks.fluss import FlussHook
from examples.ports import free_ports
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.tiering import TieringState


def test_airflow_makes_the_hook_from_a_connection(server):
    hook = BaseHook.get_hook("fluss_default")
    assert isinstance(hook, FlussHook)
    with hook.get_conn() as client:
        assert client.describe_storage().kind == "embedded"


async def test_async_client_reaches_the_server(server):
    async with await FlussHook().get_async_client() as client:
        assert await client.list_leases("no such lease") == []


def test_connection_test_tells_what_answers(server):
    works, message = FlussHook().test_connection()
    assert works
    assert "embedded" in message


def test_connection_test_tells_what_is_wrong(monkeypatch):
    port = free_ports(1)[0]
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", f"fluss://127.0.0.1:{port}?timeout=2")
    works, message = FlussHook("other").test_connection()
    assert not works
    assert f"127.0.0.1:{port}" in message


NAN, INFINITE, HUGE = (float(text) for text in ("nan", "inf", "1e12"))


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        *(({"extra": {"timeout": value}}, "timeout") for value in (NAN, INFINITE, -INFINITE, HUGE, True, False)),
        *(({"extra": {"timeout": value}}, "timeout") for value in ("nan", "inf", "true", 10**400, [1], 0, -1, "soon")),
        *(({"extra": value}, "extra") for value in ("[1]", "7", '"text"')),
        *(({"host": host}, "host") for host in ("http://127.0.0.1", "127.0.0.1:27133", "h/path", " h", "h ", "a b")),
        *(({"host": host}, "host") for host in ("http://h:1", "h:1:2", "a,, b", "id@h:1", "\0", "h\n")),
        *(({"port": port}, "port") for port in (-1, 65_536)),
    ],
)
async def test_a_wrong_field_of_the_connection_is_named(monkeypatch, fields, named):
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", json.dumps({"conn_type": "fluss", "host": "127.0.0.1", **fields}))
    expected = rf"Connection 'other' has (an )?{named} .*: expected "
    if named == "extra" and AIRFLOW < (3, 2):  # Airflow 3.1 itself refuses such an extra, and then finds no connection.
        expected = "Connection 'other' is not defined: "
    await require_unusable("other", expected)


@pytest.mark.parametrize(
    ("host", "address"),
    [
        *(("tiering_1.example", "tiering_1.example:9133"), ("id@tiering", "id@tiering:9133")),
        *(("::1", "[::1]:9133"), ("[::1]", "[::1]:9133"), ("dns:///tiering", "dns:///tiering:9133")),
        *(("one,two", "one:9133,two:9133"), ("id@one,::1", "id@one:9133,[::1]:9133")),
        ("one , two", "one:9133,two:9133"),  # E38
    ],
)
def test_a_host_is_a_name_or_an_address(monkeypatch, host, address):
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", json.dumps({"conn_type": "fluss", "host": host}))
    assert FlussHook("other").get_address() == address
    FlussHook("other").get_client().close()


def test_the_timeout_bounds_a_call(monkeypatch):
    port = free_ports(1)[0]
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", f"fluss://127.0.0.1:{port}?timeout=60")
    started = time.monotonic()
    with FlussHook("other", timeout=1).get_client() as client, refused(ErrorCode.UNAVAILABLE):
        client.describe_storage()
    assert time.monotonic() - started < 30


def test_statuses_are_listed_by_name_in_the_given_order_and_all_at_once(new_table):
    first, second = new_table(), new_table()
    assert [str(each.path) for each in FlussHook().list_tiering_statuses([second, first])] == [second, first]
    assert {first, second} <= {str(each.path) for each in FlussHook().list_tiering_statuses()}
    assert FlussHook().list_tiering_statuses([]) == []
    with refused(ErrorCode.TABLE_NOT_EXIST, "missing"):
        FlussHook().list_tiering_statuses([first, "db.missing"])
    with pytest.raises(TypeError, match="expected a list"):
        FlussHook().list_tiering_statuses(first)


def test_a_failed_table_is_resumed_also_beside_one_that_is_refused(new_table, acquire, driver):
    failed = new_table()
    driver.fail_round(acquire(failed), failed, "no space left")
    hook = FlussHook()
    assert hook.list_tiering_statuses([failed])[0].state is TieringState.FAILED
    with pytest.raises(FlussTieringError, match=r"db\.missing.*db\.gone") as error:
        hook.resume_tables(["db.missing", failed, "db.gone"])
    assert error.value.code is ErrorCode.TABLE_NOT_EXIST
    assert hook.list_tiering_statuses([failed])[0].state is TieringState.PENDING
    # A table that has not failed stays as it is.
    assert [each.state for each in hook.resume_tables([failed])] == [TieringState.PENDING]


def test_a_scheduled_table_is_made_due_at_once_if_that_is_asked_for(new_table, acquire, driver):
    table = new_table()
    driver.tier(acquire(table), table)
    hook = FlussHook()
    assert [each.state for each in hook.resume_tables([table])] == [TieringState.SCHEDULED]
    assert [each.state for each in hook.resume_tables([table], include_scheduled=True)] == [TieringState.PENDING]


def test_rounds_and_leases_are_listed(new_table, acquire, driver):
    table = new_table()
    lease = acquire(table)
    driver.fail_round(lease, table, "first")
    driver.tier(lease, table)
    hook = FlussHook()
    assert [each.state for each in hook.list_tiering_rounds(table)] == [TieringState.TIERED, TieringState.FAILED]
    assert [each.error for each in hook.list_tiering_rounds(table, limit=1)] == [None]
    assert {str(each.path) for each in hook.list_tiering_rounds(lease_id=lease["lease_id"])} == {table}
    assert [each.lease_id for each in hook.list_leases(lease["lease_id"])] == [lease["lease_id"]]
    assert lease["lease_id"] in {each.lease_id for each in hook.list_leases()}


def test_the_server_and_its_cluster_are_described(server):
    assert FlussHook().describe_storage().kind == "embedded"
