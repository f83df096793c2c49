"""Programs that are killed while rounds run, and come back."""

from __future__ import annotations

import pytest
from airflow_stack import SERVER

AWAY_SECONDS = 40.0
PROGRAMS = [
    ("triggerer",),
    ("scheduler",),
    ("dag-processor",),
    ("api-server",),
    (SERVER,),
    ("scheduler", "triggerer"),
    ("api-server", SERVER),
]


def begin_outage(begin, programs, when):
    names = " and the ".join("tiering server" if name == SERVER else name for name in programs)
    run = begin(f"`kill -9` of the {names}, away for {AWAY_SECONDS:.0f} s; {when}")
    run.wait_until_tiering()
    run.wait_for_state("wait", "deferred")
    return run


@pytest.mark.parametrize("programs", PROGRAMS, ids="_and_".join)
def test_programs_are_away_while_rounds_run(begin, programs):  # D61
    run = begin_outage(begin, programs, "the rounds end later")
    run.stack.outage(*programs, seconds=AWAY_SECONDS)
    run.proxy.go()
    ending = run.end()
    assert ending.broken == []


@pytest.mark.parametrize("program", ["triggerer", "scheduler", "api-server"])
def test_rounds_end_while_a_program_is_away(begin, program):  # D61
    run = begin_outage(begin, (program,), "the rounds end meanwhile")
    run.proxy.go()
    run.stack.outage(program, seconds=AWAY_SECONDS)
    ending = run.end()
    assert ending.broken == []
