"""Writes that are broken off: the client is killed, the server is killed, or an answer is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import grpc
import pyarrow as pa

from fluss_tiering.model.table import TablePath, WriteKind
from torture.plan import Step
from torture.world import World

FAULTS: Final = ("kill writer", "kill writer", "kill server", "lost answer")
_METHOD: Final = "WriteRows"


def broken_off(world: World, path: TablePath, kind: WriteKind, rows: pa.Table, fault: Step) -> int:
    """Write rows by a process of its own while the fault happens, and return how many of the first are acknowledged.

    Args:
        world: Where it happens.
        path: The table.
        kind: The kind of the write.
        rows: The rows.
        fault: `what` happens; `after` how many acknowledgements, and how many `ms` later; `rows` of a request.
    """
    file = world.folder / "written.arrow"
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    with _calls_met(world, fault) as target:
        names = json.dumps([path.database, path.table])
        arguments = [target, names, kind.value, str(file), str(fault["rows"])]
        process = subprocess.Popen(
            [sys.executable, "-m", "torture.faults.writer", *arguments],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        )
        said = _read_until_broken(world, process, fault)
    return sum(int(line) for line in said if line.isdigit())


def _read_until_broken(world: World, process: subprocess.Popen[str], fault: Step) -> list[str]:
    """Return the lines of the writer, to which the fault happens after some of them."""
    assert process.stdout is not None
    said: list[str] = []
    broken = False
    for line in process.stdout:
        said.append(line.strip())
        if not broken and len(said) > fault["after"]:
            broken = True
            time.sleep(fault["ms"] / 1000)
            if fault["what"] == "kill writer":
                process.kill()
            elif fault["what"] == "kill server":
                world.servers.kill()
    process.wait()
    if fault["what"] == "kill server":
        if not broken:
            world.servers.kill()
        world.servers.start()
    return said


@contextmanager
def _calls_met(world: World, fault: Step) -> Iterator[str]:
    """Let the writer's call meet a fault inside the block, and yield the address that the writer uses."""
    if fault["what"] != "lost answer":
        yield world.target
        return
    seen = 0
    lock = threading.Lock()

    def lose(context: grpc.ServicerContext, number: int) -> None:
        nonlocal seen
        with lock:
            seen += 1
            lost = seen > fault["after"]
        if lost:
            context.abort(grpc.StatusCode.UNAVAILABLE, "lost by the torture")

    world.proxy.answer_faults[_METHOD] = lose
    try:
        yield world.proxy.target
    finally:
        world.proxy.answer_faults.clear()
