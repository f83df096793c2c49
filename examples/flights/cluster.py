"""A Fluss cluster among the programs of the example."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from examples.flights.processes import Processes
from examples.fluss_cluster import FlussClusterPrograms, accepts
from examples.ports import free_ports

_TABLET_SERVERS: Final = 2
_READY_SECONDS: Final = 600.0
"""For a machine that is busy: a program that ends is noticed at once."""
_SETTINGS: Final = {"kv.snapshot.interval": "5s", "remote.log.task-interval-duration": "5s"}
"""Short intervals, so that there soon are KV snapshots to try things with."""


def start_cluster(
    processes: Processes, folder: Path, jars: Path, version: str, settings: Mapping[str, str] | None = None
) -> str:
    """Start ZooKeeper, a coordinator and two tablet servers, and return HOST:PORT once they serve.

    Args:
        processes: The programs of the run. They end the servers in the opposite order.
        folder: The folder of the servers' data, which is kept if it exists.
        jars: The folder that has a folder with jars for each version of Fluss.
        version: The version of Fluss, for example 0.9.1 or 1.0.
        settings: Settings of the servers. They win over those of the example.

    Raises:
        SystemExit: There are no jars, or a server ended or was not ready in time.
    """
    found = sorted(jars.glob(f"{version}*/lib"))
    if not found:
        raise SystemExit(
            f"error: there are no jars of Fluss {version} in {jars}: install Maven, then run "
            f"`python tools/fetch_fluss_jars.py {version}`, which fetches them or says what it needs"
        )
    programs = FlussClusterPrograms(
        folder,
        found[-1].parent,
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
