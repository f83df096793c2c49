"""Faults that meet a round from outside: processes killed and stopped, calls lost and late, no room on the disk."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import grpc

from fault_proxy import Fault
from torture.plan import Step
from torture.processes import DISK_FULL
from torture.world import World

METHODS: Final = (
    "ClaimTables",
    "LakeTieringHeartbeat",
    "PrepareLakeTableSnapshot",
    "CommitLakeTableSnapshot",
    "AcquireKvSnapshotLease",
    "ListBuckets",
)
_PAUSE_S: Final = 0.5
_LATE_S: Final = 1.5


@contextmanager
def calls_met(world: World, fault: Step) -> Iterator[str]:
    """Let the calls of a driver meet a fault inside the block, and yield the address that the driver uses."""
    what = fault["what"]
    if what == "disk full":
        with _full_disk(world):
            yield world.target
        return
    if what == "throttled":
        assert world.lake.throttling is not None
        world.lake.throttling.share = fault["share"]
        try:
            yield world.target
        finally:
            world.lake.throttling.share = 0.0
        return
    if what not in {"lost request", "lost answer", "late answer"}:
        yield world.target
        return
    proxy, met = world.proxy, [0]

    def lose(context: grpc.ServicerContext, number: int) -> None:
        met[0] += 1
        if met[0] <= fault.get("times", 1):
            context.abort(grpc.StatusCode.UNAVAILABLE, "lost by the torture")

    def delay(context: grpc.ServicerContext, number: int) -> None:
        met[0] += 1
        if met[0] <= fault.get("times", 1):
            time.sleep(_LATE_S)

    chosen: Fault = delay if what == "late answer" else lose
    faults = proxy.faults if what == "lost request" else proxy.answer_faults
    faults[fault["method"]] = chosen
    try:
        yield proxy.target
    finally:
        faults.clear()


@contextmanager
def _full_disk(world: World) -> Iterator[None]:
    """Leave no room in the lake inside the block, or let workers say so where no disk can be mounted."""
    if world.lake.has_own_disk and world.cluster is None:
        world.lake.fill_disk()
        try:
            yield
        finally:
            world.lake.free_disk()
        return
    full = world.folder / DISK_FULL
    full.touch()
    try:
        yield
    finally:
        full.unlink()


def meet(world: World, fault: Step, marker: Path) -> None:
    """Do to the processes what the fault says, while the driver runs a round."""
    driver, what = world.driver, fault["what"]
    if what == "stop":
        wait(lambda: marker.exists() or not driver.running or driver.has_answered())
        time.sleep(_PAUSE_S)
        driver.signal(signal.SIGCONT)
    elif what == "kill worker":
        wait(lambda: driver.workers() or driver.has_answered())
        for worker in driver.workers():
            worker.kill()
    elif what == "stop worker":
        wait(lambda: driver.workers() or driver.has_answered())
        stopped = driver.workers()
        for worker in stopped:
            worker.suspend()
        time.sleep(_PAUSE_S)
        for worker in stopped:
            worker.resume()
    elif what == "clock step":
        world.servers.turn_clock(fault["ms"])
    elif what == "disk full":
        wait(driver.has_answered, 10)
    elif what == "kill server":
        wait(lambda: marker.exists() or driver.has_answered(), fault.get("after", 0.3))
        world.servers.kill()
        world.servers.start()
    elif what == "stop server":
        world.servers.suspend(_PAUSE_S * 4)
    elif what in {"cut active server", "cut other server"}:
        wait(lambda: marker.exists() or driver.has_answered(), fault["after"])
        world.servers.cut(active=what == "cut active server", seconds=fault["seconds"])
    elif what in {"kill tablet server", "stop tablet server", "kill coordinator"} and world.cluster is not None:
        _meet_cluster(world, what)


def _meet_cluster(world: World, what: str) -> None:
    cluster: Any = world.cluster
    if what == "kill coordinator":
        cluster.coordinator.kill()
        cluster.coordinator.start()
    elif what == "kill tablet server":
        cluster.tablet_servers[0].stop()
        cluster.tablet_servers[0].start()
    else:
        cluster.tablet_servers[0].pause()
        time.sleep(_PAUSE_S * 4)
        cluster.tablet_servers[0].resume()
    cluster.wait_until_ready()


def wait(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Return once the condition holds, or after these seconds."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
