"""Samples the CPU seconds and the memory of a tree of processes over time.

Memory is the proportional set size: a page that forked processes share counts only once.
"""

from __future__ import annotations

import bisect
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Self

import psutil

from fluss_tiering.model.closing import Closing

_INTERVAL_SECONDS: Final = 0.2
_MEMORY_EVERY: Final = 5
"""The number of CPU samples for each memory sample, which stops a process for about 0.05 s to count its pages."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample: the time since the epoch, the CPU seconds so far including ended children, and the bytes of memory.

    Bytes are 0 if they were not counted.
    """

    time: float
    cpu: float
    memory_bytes: int


class TreeSampler(Closing):
    """Samples processes and their children inside a `with` block.

    When a child ends, its CPU seconds since the last sample are lost: at most those of one interval.
    """

    def __init__(self, pids: Callable[[], Sequence[int]]) -> None:
        self._pids = pids
        self._cpu: dict[psutil.Process, float] = {}
        self._samples: list[Sample] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def close(self) -> None:
        """Take no more samples."""
        self._stopped.set()
        self._thread.join()

    def cpu_seconds(self, start: float, end: float) -> float:
        """Return the CPU seconds used between two times."""
        return self._cpu_at(end) - self._cpu_at(start)

    def peak_bytes(self, start: float, end: float) -> int:
        """Return the largest memory between two times, including the last sample before them."""
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
                    self._cpu[process] = times.user + times.system
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
