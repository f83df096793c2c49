"""Whether a caller may do what needs Spark: asked before Spark starts, so that nobody waits to be refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fluss_tiering.client import TieringClient


def check_may_tier(client: TieringClient) -> None:
    """Check that the caller may change lake tables. A server that does not ask who calls lets everybody do so.

    Args:
        client: The client of the tiering server.

    Raises:
        FlussTieringError: AUTHENTICATION or AUTHORIZATION if the caller may not; UNAVAILABLE if the server cannot
            be reached.
    """
    # A heartbeat about no round changes nothing, and takes the role that rounds take.
    client.heartbeat()
