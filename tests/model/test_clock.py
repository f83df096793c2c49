"""The clock of a machine whose time somebody sets."""

from __future__ import annotations

from fluss_tiering.model.clock import SystemClock

SECOND = 1_000_000_000


def test_a_jump_backward_stops_nothing() -> None:  # S4, L9
    wall, monotonic = 1_000 * SECOND, 5 * SECOND
    clock = SystemClock(lambda: wall, lambda: monotonic)
    assert clock.now_ms() == 1_000_000
    wall, monotonic = 400 * SECOND, 15 * SECOND  # ten seconds went by, and the clock was set back
    assert clock.now_ms() == 1_010_000
    monotonic += SECOND
    assert clock.now_ms() == 1_011_000
    wall = 2_000 * SECOND
    assert clock.now_ms() == 2_000_000, "a jump forward is followed"
    monotonic += SECOND
    assert clock.now_ms() == 2_001_000
