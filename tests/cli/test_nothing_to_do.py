"""A command that has nothing to do says so, and programs get an empty array."""

from __future__ import annotations

import json

import pytest

from engine_support import descriptor, new_path
from fluss_tiering.client import TieringClient
from fluss_tiering.model.table_options import LAKE_ENABLED
from fluss_tiering.spark import application


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["tier", "--pending"], "No table is pending."), (["maintain"], "No table has an option that asks for")],
)
def test_json_is_an_empty_array(command, monkeypatch, arguments, said):
    monkeypatch.setattr(TieringClient, "list_tiering_statuses", lambda *_: [])
    found = command(*arguments, "--json")
    assert (found.code, json.loads(found.out)) == (0, [])
    assert said in found.err
    assert said in command(*arguments).out


def test_a_table_that_is_not_tiered_is_told_before_spark_starts(command, client, monkeypatch):
    table = client.create_table(new_path(), descriptor(tiered=False))
    other = client.create_table(new_path(), descriptor(tiered=False))
    monkeypatch.setattr(application, "own_session", lambda *_: pytest.fail("Spark would start"))
    found = command("tier", str(table.path), str(other.path), "--json")
    assert found.code == 1
    for path, each in zip((table.path, other.path), json.loads(found.out), strict=True):
        assert (
            each["error"] == f"table {path} is not tiered: create or alter it with the option {LAKE_ENABLED.key}=true"
        )
    assert f"table {table.path} is not tiered" in command("tier", str(table.path)).out
