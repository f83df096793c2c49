"""The hook and its connection."""

from __future__ import annotations

import time

import pytest
from airflow.sdk import BaseHook

from airflow_provider_fluss.hooks.fluss import FlussHook
from examples.ports import free_ports
from fluss_tiering.model.errors import ErrorCode, FlussTieringError


def test_the_connection_names_the_server(monkeypatch):
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", "fluss://tiering.example:9999")
    assert FlussHook("other").get_address() == "tiering.example:9999"


def test_the_port_has_a_default(monkeypatch):
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", "fluss://tiering.example")
    assert FlussHook("other").get_address() == "tiering.example:9133"


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


@pytest.mark.parametrize("uri", ["fluss://", "fluss://h?timeout=soon", "fluss://h?timeout=0", "fluss://h?timeout=-1"])
def test_an_unusable_connection_is_named(monkeypatch, uri):
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", uri)
    works, message = FlussHook("other").test_connection()
    assert not works
    assert "'other'" in message
    with pytest.raises(ValueError, match="'other'"):
        FlussHook("other").get_client()


def test_the_timeout_bounds_a_call(monkeypatch):
    port = free_ports(1)[0]
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", f"fluss://127.0.0.1:{port}?timeout=60")
    started = time.monotonic()
    with FlussHook("other", timeout=1).get_client() as client, pytest.raises(FlussTieringError) as error:
        client.describe_storage()
    assert error.value.code is ErrorCode.UNAVAILABLE
    assert time.monotonic() - started < 30
