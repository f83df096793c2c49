"""A command that has nothing to do says so, and programs get an empty array."""

from __future__ import annotations

import json

import pytest

from fluss_tiering.client import TieringClient


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
