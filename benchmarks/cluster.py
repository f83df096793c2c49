"""A Fluss cluster for a benchmark, with a database to load tables into."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.flink.tables import BenchmarkTables
from examples.flights.cluster import start_cluster
from examples.flights.processes import Processes
from fluss_tiering.storage.fluss.rpc.client import FlussClient

JARS: Final = Path(".cache/fluss")


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster that runs. `folder` is gone with it: for all that the benchmark writes."""

    bootstrap: str
    client: FlussClient
    tables: BenchmarkTables
    folder: Path


@contextmanager
def running_cluster() -> Iterator[Cluster]:
    """Two tablet servers, and a lake catalog beside them."""
    with tempfile.TemporaryDirectory(prefix="fluss-tiering-bench-") as name:
        folder = Path(name)
        processes = Processes(folder / "cluster")
        try:
            bootstrap = start_cluster(processes, folder / "fluss", JARS)
            with FlussClient(bootstrap, timeout=60) as client:
                tables = BenchmarkTables(client, "bench", folder / "cluster" / "coordinator.log")
                yield Cluster(bootstrap, client, tables, folder)
        finally:
            processes.stop()
