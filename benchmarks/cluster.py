"""Starts a Fluss cluster for a benchmark, with a database for its tables."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.flink.tables import BenchmarkTables
from examples.flights.cluster import start_cluster
from examples.flights.processes import Processes
from fluss_tiering.storage.fluss.rpc.client import FlussClient

JARS: Final = Path(".cache/fluss")
VERSION: Final = "0.9.1"
VERSION_WITH_SESSIONS: Final = "1.0"


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running cluster. The benchmark writes into `folder`, which is deleted with the cluster."""

    bootstrap: str
    client: FlussClient
    tables: BenchmarkTables
    folder: Path


@contextmanager
def running_cluster(version: str = VERSION, settings: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    """Start a cluster with two tablet servers and a lake catalog. The settings are further ones of its servers."""
    with tempfile.TemporaryDirectory(prefix="fluss-tiering-bench-") as name:
        folder = Path(name)
        processes = Processes(folder / "cluster")
        try:
            bootstrap = start_cluster(processes, folder / "fluss", JARS, version, settings)
            with FlussClient(bootstrap, timeout=60) as client:
                tables = BenchmarkTables(client, "bench", folder / "cluster" / "coordinator.log")
                yield Cluster(bootstrap, client, tables, folder)
        finally:
            processes.stop()
