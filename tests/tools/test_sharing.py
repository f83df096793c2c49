"""The processes of a run divide its tests by what they need, and what takes longest comes first."""

from __future__ import annotations

from sharing import SPARK, Queue

SECONDS = {
    "a.py": 10,
    "b.py": 20,
    "c.py cluster-1.0": 5,
    f"d.py cluster-1.0 {SPARK}": 50,
    f"e.py {SPARK}": 40,
    f"f.py {SPARK}": 30,
}


def taken(queue: Queue, node: str, waiting: list[str]) -> str | None:
    unit = queue.choose(node, waiting)
    if unit is not None:
        waiting.remove(unit)
    return unit


def test_one_process_has_what_is_shared_and_goes_on_with_it():
    queue, waiting = Queue(SECONDS), list(SECONDS)
    assert taken(queue, "first", waiting) == f"d.py cluster-1.0 {SPARK}"
    assert taken(queue, "second", waiting) == "b.py"
    assert taken(queue, "first", waiting) == "c.py cluster-1.0"
    # It has a session already.
    assert taken(queue, "first", waiting) == f"e.py {SPARK}"


def test_a_session_is_started_if_all_else_is_done_and_it_is_worth_it():
    queue, waiting = Queue(SECONDS), list(SECONDS)
    taken(queue, "first", waiting)
    assert [taken(queue, "second", waiting) for _ in range(3)] == ["b.py", "a.py", f"e.py {SPARK}"]
    assert taken(queue, "third", waiting) is None
    queue.forget("first")
    assert taken(queue, "third", waiting) == "c.py cluster-1.0"
