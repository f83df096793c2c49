"""The link from a tiering server to the Fluss cluster whose tables it tiers."""

from __future__ import annotations

from dataclasses import dataclass

from fluss_tiering.storage.fluss.rpc.client import FlussClient
from fluss_tiering.storage.fluss.rpc.handshake import Credentials


@dataclass(frozen=True, slots=True)
class ClusterLink:
    """The addresses of a cluster and a client for it.

    Attributes:
        bootstrap_servers: HOST:PORT of some servers, separated by commas.
        credentials: The user and the password for a listener that demands SASL.
        client: The client that all threads of the server share.
    """

    bootstrap_servers: str
    credentials: Credentials | None
    client: FlussClient
