"""Programs that are killed while rounds run, and come back."""

from __future__ import annotations

import pytest
from airflow_stack import SERVER

AWAY_SECONDS = 40.0


@pytest.mark.parametrize(
    "programs",
    [
        ("triggerer",),
        ("scheduler",),
        ("dag-processor",),
        ("api-server",),
        (SERVER,),
        ("scheduler", "triggerer"),
        ("api-server", SERVER),
    ],
    ids="_and_".join,
)
@pytest.mark.parametrize("before", [True, False], ids=["the_rounds_go_on_after", "the_rounds_end_meanwhile"])
def test_programs_are_killed_and_come_back(begin, programs, before):  # D61
    if not before and len(programs) > 1:
        pytest.skip("each of the two was tried")
    names = " and ".join("tiering server" if name == SERVER else name for name in programs)
    when = "the rounds go on afterwards" if before else "the rounds end meanwhile"
    run = begin(f"`kill -9` of the {names}, away for {AWAY_SECONDS:.0f} s; {when}")
    run.wait_until_tiering()
    run.wait_for_state("wait", "deferred")
    if not before:
        run.proxy.go()
    run.stack.outage(*programs, seconds=AWAY_SECONDS)
    run.proxy.go()
    ending = run.end()
    assert ending.broken == []
