"""What a tree of processes costs over time: CPU seconds and memory, sampled.

Memory is the proportional set size: a page that forked processes share counts once, as it lies in memory once.
"""

from __future__ import annotations

import bisect
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

import psutil

_INTERVAL_SECONDS: Final = 0.2
_MEMORY_EVERY: Final = 5
"""Samples for each of memory, which stops a process for as long as its pages are counted: 0.05 s of all."""


@dataclass(frozen=True, slots=True)
class Sample:
    """At a time (seconds since the epoch): CPU seconds so far, with those of children that ended; bytes of memory.

    Bytes are 0 where they were not counted.
    """

    time: float
    cpu: float
    memory_bytes: int


class TreeSampler:
    """Samples processes and their children while it is entered.

    A child's CPU seconds since its last sample are lost when it ends, so at most an interval's.
    """

    def __init__(self, pids: Callable[[], Sequence[int]]) -> None:
        self._pids = pids
        self._cpu: dict[tuple[int, float], float] = {}
        self._samples: list[Sample] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._thread.join()

    def cpu_seconds(self, start: float, end: float) -> float:
        """CPU seconds used between two times."""
        return self._cpu_at(end) - self._cpu_at(start)

    def peak_bytes(self, start: float, end: float) -> int:
        """The most bytes of memory between two times, the last sample before them included."""
        counted = [each for each in self._samples if each.memory_bytes]
        first = max(0, bisect.bisect(counted, start, key=lambda each: each.time) - 1)
        return max((each.memory_bytes for each in counted[first:] if each.time <= end), default=0)

    def _cpu_at(self, when: float) -> float:
        index = bisect.bisect(self._samples, when, key=lambda each: each.time)
        if index == 0:
            return 0.0
        before = self._samples[index - 1]
        if index == len(self._samples):
            return before.cpu
        after = self._samples[index]
        return before.cpu + (after.cpu - before.cpu) * (when - before.time) / (after.time - before.time)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._samples.append(self._sample())
            self._stopped.wait(_INTERVAL_SECONDS)
        self._samples.append(self._sample())

    def _sample(self) -> Sample:
        count_memory = len(self._samples) % _MEMORY_EVERY == 0
        memory_bytes = 0
        for process in self._tree():
            try:
                with process.oneshot():
                    times = process.cpu_times()
                    if count_memory:
                        memory_bytes += process.memory_full_info().pss
                    self._cpu[process.pid, process.create_time()] = times.user + times.system
            except psutil.Error:
                continue
        return Sample(time.time(), sum(self._cpu.values()), memory_bytes)

    def _tree(self) -> list[psutil.Process]:
        processes = []
        for pid in self._pids():
            try:
                root = psutil.Process(pid)
                processes += [root, *root.children(recursive=True)]
            except psutil.Error:
                continue
        return processes
