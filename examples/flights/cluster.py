"""A Fluss cluster of its own among the example's programs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from examples.flights.processes import Processes
from examples.fluss_cluster import FlussClusterPrograms, accepts
from examples.ports import free_ports

_TABLET_SERVERS: Final = 2
_READY_SECONDS: Final = 120.0
_SETTINGS: Final = {"kv.snapshot.interval": "5s", "remote.log.task-interval-duration": "5s"}
"""Short, so that there are KV snapshots to play with soon."""


def start_cluster(processes: Processes, folder: Path, jars: Path, settings: Mapping[str, str] | None = None) -> str:
    """Starts ZooKeeper, a coordinator and two tablet servers; returns HOST:PORT once they serve.

    Args:
        processes: end the servers: those started last first, ZooKeeper last.
        folder: of their data, kept when it is there.
        jars: with a folder for each version of Fluss.
        settings: of the servers, over those of the example.

    Raises:
        SystemExit: a server ended or was not ready in time; or there are no jars.
    """
    versions = sorted(jars.glob("*/lib"))
    if not versions:
        raise SystemExit(
            f"error: there are no jars of a Fluss cluster in {jars}: install Maven, then run `make setup` again"
        )
    programs = FlussClusterPrograms(
        folder,
        versions[-1].parent,
        free_ports(3 + 2 * _TABLET_SERVERS),
        settings={**_SETTINGS, **(settings or {})},
    )
    zookeeper = processes.start("zookeeper", programs.zookeeper.command, programs.zookeeper.environment)
    processes.wait_until(zookeeper, lambda: accepts(programs.zookeeper.port), _READY_SECONDS)
    last = zookeeper
    for program in (programs.coordinator, *programs.tablet_servers):
        last = processes.start(program.name, program.command, program.environment)
    processes.wait_until(last, programs.is_ready, _READY_SECONDS)
    return programs.bootstrap
