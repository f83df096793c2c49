"""The clock of a machine whose time somebody sets, and the time limit of a block that waits."""

from __future__ import annotations

import threading

import pytest

from cases import cases
from fluss_tiering.model.clock import SystemClock, uptime_ns
from fluss_tiering.model.closing import time_limit

SECOND = 1_000_000_000
HOUR = 3600 * SECOND
YEAR = 365 * 24 * HOUR


class Machine:
    """A machine's two clocks, of which one can be set."""

    def __init__(self) -> None:
        self.wall = 1_000_000 * SECOND
        self.steady = 5 * SECOND
        self.clock = SystemClock(lambda: self.wall, lambda: self.steady)

    def pass_time(self, nanoseconds: int) -> int:
        """Return how much time passes by the clock, in nanoseconds."""
        before = self.clock.now_ms()
        self.wall += nanoseconds
        self.steady += nanoseconds
        return (self.clock.now_ms() - before) * 1_000_000


@cases("step", [130 * SECOND, -HOUR, YEAR, -YEAR])
def test_a_step_of_the_machines_clock_ends_and_delays_nothing(step: int) -> None:  # S4, L9, D3
    machine = Machine()
    assert machine.pass_time(10 * SECOND) == 10 * SECOND
    machine.wall += step
    assert machine.pass_time(0) == 0
    for _ in range(10):
        assert 9.5 * SECOND <= machine.pass_time(10 * SECOND) <= 10.5 * SECOND


@pytest.mark.parametrize("step", [130 * SECOND, -130 * SECOND])
def test_the_clock_agrees_with_the_machine_after_a_while(step: int) -> None:  # D3
    machine = Machine()
    machine.wall += step
    assert machine.clock.behind_ms() == step // 1_000_000
    for _ in range(60):
        machine.pass_time(60 * SECOND)
    assert machine.clock.behind_ms() == 0
    assert machine.clock.now_ms() * 1_000_000 == machine.wall


def test_a_year_forward_and_back_leaves_nothing_behind() -> None:  # D3
    machine = Machine()
    machine.wall += YEAR
    machine.pass_time(60 * SECOND)
    machine.wall -= YEAR
    machine.pass_time(120 * SECOND)
    assert abs(machine.clock.behind_ms()) < 1


def test_the_time_of_the_machine_passes() -> None:
    assert SystemClock().now_ms() > 1_700_000_000_000
    assert uptime_ns() <= uptime_ns()


def test_what_takes_longer_is_ended() -> None:
    over = threading.Event()
    with time_limit(0.01, over.set):
        assert over.wait(60)


@pytest.mark.parametrize("error", [None, ValueError, StopIteration])
def test_what_ends_in_time_is_left_alone(error: type[Exception] | None) -> None:
    threads = threading.active_count()

    def run() -> None:
        with time_limit(3600, lambda: pytest.fail("it ended in time")):
            if error is not None:
                raise error("as it is")

    if error is None:
        run()
    else:
        with pytest.raises(error, match="as it is"):
            run()
    while threading.active_count() > threads:
        """The timer's thread ends at once."""
