"""A plan gets smaller as long as it finds the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from torture.makers.histories import make_plan
from torture.plan import Plan
from torture.shrink import shrink


def test_a_plan_is_the_same_for_the_same_seed_and_as_a_file(tmp_path):
    for seed in range(40):
        plan = make_plan(seed, "embedded")
        assert plan.to_json() == make_plan(seed, "embedded").to_json()
        plan.save(tmp_path / "plan.json")
        assert Plan.load(tmp_path / "plan.json").to_json() == plan.to_json()


@pytest.mark.slow
def test_a_plan_shrinks_to_what_it_needs():
    plan = next(plan for plan in (make_plan(seed, "embedded") for seed in range(100)) if _finds(plan))
    small = shrink(plan, _finds, seconds=60)
    assert _finds(small)
    (table,) = small.tables
    assert [step["do"] for step in small.steps] == ["write", "tier"]
    assert len(small.steps[0]["keep"]) == 1
    assert "fault" not in small.steps[1]
    # A table of one column stays a table.
    assert len(table.columns) <= 1 + len(table.primary_key) + len(table.partition_keys)
    assert table.num_buckets == 1


def test_a_plan_of_which_nothing_can_be_left_out_stays():
    plan = make_plan(1, "embedded")
    assert shrink(plan, lambda _: False, seconds=60) == plan
    assert replace(plan) == plan


def _finds(plan: Plan) -> bool:
    """Stand for a defect that a table shows after a write and a round."""
    written = {step["table"] for step in plan.steps if step["do"] == "write"}
    return any(written & set(step["tables"]) for step in plan.steps if step["do"] == "tier")
