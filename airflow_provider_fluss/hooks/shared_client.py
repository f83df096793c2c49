"""One asyncio client for all triggers of an event loop that ask the same server with the same deadline and credentials.

A triggerer may run hundreds of triggers in one loop. A channel of gRPC for each would cost memory, threads' time and
pings that keep it alive.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from fluss_tiering.client import AsyncTieringClient
    from fluss_tiering.client.security import ClientSecurity


@dataclass(slots=True)
class _Shared:
    client: AsyncTieringClient
    users: int = 0


_CLIENTS: Final[dict[tuple[asyncio.AbstractEventLoop, str, float, str, ClientSecurity | None], _Shared]] = {}
"""The clients that somebody uses, by their loop, address, deadline, label and credentials."""


@asynccontextmanager
async def shared_client(
    address: str, deadline_seconds: float, label: str, security: ClientSecurity | None
) -> AsyncIterator[AsyncTieringClient]:
    """Yield the client of this event loop, and close it when nobody uses it any more.

    Args:
        address: The address of the server.
        deadline_seconds: The deadline of each call in seconds.
        label: What errors name besides the address.
        security: The credentials; None for those of the environment.

    Raises:
        FlussTieringError: INVALID_REQUEST if the address is not one.
    """
    from fluss_tiering.client import AsyncTieringClient  # noqa: PLC0415 - gRPC is not needed to parse a DAG

    key = (asyncio.get_running_loop(), address, deadline_seconds, label, security)
    shared = _CLIENTS.get(key)
    if shared is None:
        shared = _CLIENTS[key] = _Shared(
            AsyncTieringClient(address, timeout=deadline_seconds, label=label, security=security)
        )
    shared.users += 1
    try:
        yield shared.client
    finally:
        shared.users -= 1
        if not shared.users:
            del _CLIENTS[key]
            await shared.client.close()
