"""How a server reaches the Fluss cluster whose tables it tiers."""

from __future__ import annotations

from dataclasses import dataclass

from fluss_tiering.storage.fluss.rpc.client import FlussClient
from fluss_tiering.storage.fluss.rpc.handshake import Credentials


@dataclass(frozen=True, slots=True)
class ClusterLink:
    """A cluster, with what it takes to talk to it.

    Attributes:
        bootstrap_servers: HOST:PORT with commas between them.
        credentials: for a listener that demands SASL.
        client: shared by all threads of the server.
    """

    bootstrap_servers: str
    credentials: Credentials | None
    client: FlussClient
