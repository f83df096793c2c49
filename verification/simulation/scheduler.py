"""Processes on a virtual clock: each thread of a process is a greenlet, and only one of them runs at a time.

A fiber runs until it waits. A run is therefore a sequence of steps that only depends on random numbers, and replays.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable
from typing import Any

import greenlet

from fluss_tiering.spark.runtime import Runtime

START_MS = 1_700_000_000_000


class Process:
    """A process, which dies at once and is paused as a whole."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.paused_until = 0
        self.fibers: list[Fiber] = []

    def __str__(self) -> str:
        return self.name

    def pause(self, until_ms: int) -> None:
        """Let none of its fibers run before this time, as after SIGSTOP or in a long garbage collection."""
        self.paused_until = max(self.paused_until, until_ms)


class Fiber(greenlet.greenlet):
    """A thread of a process."""

    def __init__(self, scheduler: Scheduler, process: Process, run: Callable[[], None]) -> None:
        super().__init__(run, scheduler.hub)
        self.process = process
        self.wakeup = 0
        """The number of the present wait. A timer of an earlier wait wakes nobody."""


class Scheduler:
    """The clock, and the order in which fibers run. It is also the `Clock` of the managers."""

    def __init__(self) -> None:
        self.hub = greenlet.getcurrent()
        self.now = START_MS
        self.steps = 0
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def now_ms(self) -> int:
        return self.now

    def at(self, time_ms: int, callback: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (time_ms, next(self._order), callback))

    def after(self, delay_ms: int, callback: Callable[[], None]) -> None:
        self.at(self.now + delay_ms, callback)

    def run(self, until: Callable[[], bool]) -> None:
        """Run until the condition holds, or nothing is left to do."""
        while self._queue and not until():
            time_ms, _, callback = heapq.heappop(self._queue)
            self.now = max(self.now, time_ms)
            self.steps += 1
            callback()

    def spawn(self, process: Process, function: Callable[..., object], *args: object) -> Fiber:
        """Return a new fiber of the process, which begins in its turn."""
        fiber = Fiber(self, process, lambda: _run(function, args))
        process.fibers = [each for each in process.fibers if not each.dead]
        process.fibers.append(fiber)
        self.after(0, lambda: self._resume(fiber, fiber.wakeup))
        return fiber

    def sleep(self, delay_ms: int) -> None:
        """Let the present fiber wait."""
        fiber = self._waiting()
        number = fiber.wakeup
        self.after(delay_ms, lambda: self._resume(fiber, number))
        self._wait(fiber)

    def wait(self, waiters: list[Callable[[], None]], timeout_ms: int | None) -> None:
        """Let the present fiber wait until its entry in `waiters` is called, or the time is over."""
        fiber = self._waiting()
        number = fiber.wakeup
        waiters.append(lambda: self.after(0, lambda: self._resume(fiber, number)))
        if timeout_ms is not None:
            self.after(timeout_ms, lambda: self._resume(fiber, number))
        self._wait(fiber)

    def kill(self, process: Process) -> None:
        """End a process where it is, so that none of its clean-up has an effect outside."""
        if not process.alive:
            return
        process.alive = False
        current = greenlet.getcurrent()
        for fiber in process.fibers:
            if fiber is not current and not fiber.dead:
                self._throw(fiber)
        if isinstance(current, Fiber) and current.process is process:
            raise greenlet.GreenletExit

    def _throw(self, fiber: Fiber) -> None:
        fiber.wakeup += 1
        if not fiber:
            # It never began: there is nothing to leave.
            return
        fiber.parent = greenlet.getcurrent()
        fiber.throw(greenlet.GreenletExit)

    def _waiting(self) -> Fiber:
        fiber = greenlet.getcurrent()
        assert isinstance(fiber, Fiber)
        if not fiber.process.alive:
            raise greenlet.GreenletExit
        return fiber

    def _wait(self, fiber: Fiber) -> None:
        self.hub.switch()
        if not fiber.process.alive:
            raise greenlet.GreenletExit

    def _resume(self, fiber: Fiber, number: int) -> None:
        if fiber.wakeup != number or fiber.dead or not fiber.process.alive:
            return
        if fiber.process.paused_until > self.now:
            self.at(fiber.process.paused_until, lambda: self._resume(fiber, number))
            return
        fiber.wakeup += 1
        fiber.parent = self.hub
        fiber.switch()


def _run(function: Callable[..., object], args: tuple[object, ...]) -> None:
    try:
        function(*args)
    except greenlet.GreenletExit:
        # The process was killed.
        return


def current_process() -> Process:
    """Return the process of the present fiber."""
    fiber = greenlet.getcurrent()
    assert isinstance(fiber, Fiber)
    return fiber.process


class SimEvent:
    """An event, like `threading.Event`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._set = False
        self._waiters: list[Callable[[], None]] = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        waiters, self._waiters = self._waiters, []
        for wake in waiters:
            wake()

    def wait(self, timeout: float | None = None) -> bool:
        if not self._set:
            self._scheduler.wait(self._waiters, None if timeout is None else math.ceil(timeout * 1000))
        return self._set


class SimThread:
    """A thread of the process that starts it, like `threading.Thread`."""

    def __init__(self, scheduler: Scheduler, target: Callable[[], None]) -> None:
        self._scheduler = scheduler
        self._target = target
        self._ended = SimEvent(scheduler)

    def start(self) -> None:
        self._scheduler.spawn(current_process(), self._run)

    def join(self, timeout: float | None = None) -> None:
        self._ended.wait(timeout)

    def _run(self) -> None:
        self._target()
        self._ended.set()


class SimQueue:
    """A queue, like `queue.SimpleQueue`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._items: deque[Any] = deque()
        self._waiters: list[Callable[[], None]] = []

    def put(self, item: object) -> None:
        self._items.append(item)
        waiters, self._waiters = self._waiters, []
        for wake in waiters:
            wake()

    def get(self) -> Any:
        while not self._items:
            self._scheduler.wait(self._waiters, None)
        return self._items.popleft()


def runtime_of(scheduler: Scheduler) -> Runtime:
    """Return the clock and the threads that a simulated application uses.

    It keeps the real locks: no fiber waits while it holds one, so that no other fiber finds it locked.
    """
    return Runtime(
        monotonic=lambda: (scheduler.now - START_MS) / 1000,
        new_event=lambda: SimEvent(scheduler),
        new_thread=lambda target, name: SimThread(scheduler, target),
        new_queue=lambda: SimQueue(scheduler),
    )
