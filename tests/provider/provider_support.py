"""What an application does to a tiering server, and a lease at a server that is away."""

from __future__ import annotations

import re
import socket
import subprocess
import traceback
from typing import Any, Final

import pytest

from airflow_provider_fluss.hooks.fluss import FlussHook
from airflow_provider_fluss.missing_connection import UnusableConnectionError
from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import Claim, HeartbeatEntry, TieringStats

AWAY: Final = {
    "lease_id": "x",
    "attempt_token": 1,
    "tables": ["db.t"],
    "lease_duration_ms": 1000,
    "fluss_conn_id": "away",
}
"""A lease at a server whose connection a test names."""


LIVING: Final = "local-1 on a-machine-elsewhere, process 1"
"""The name of an application of which nobody here can say that it is dead."""


def dead_driver() -> str:
    """Return the name of an application of this machine whose process has ended."""
    ended = subprocess.Popen(["true"])
    ended.wait(30)
    return f"local-1 on {socket.gethostname()}, process {ended.pid}"


class Driver:
    """What an application does to the server, as far as waiters see it.

    Args:
        client: A client of the server.
        name: The name of the application. If it is None, its process has ended.
    """

    def __init__(self, client: TieringClient, name: str | None = None) -> None:
        self._client = client
        self._name = name or dead_driver()

    def claim(self, lease: dict[str, Any], table: str) -> Claim:
        (claim,) = self._client.claim_tables(
            [TablePath.parse(table)], lease["lease_id"], lease["attempt_token"], self._name
        )
        if isinstance(claim, FlussTieringError):
            raise claim
        return claim

    def finish(self, claim: Claim) -> None:
        entry = HeartbeatEntry(claim.table_id, claim.tiering_epoch, stats=TieringStats(3, 300, 1, 42))
        answer = self._client.heartbeat(finished=[entry])
        assert not answer.finished_errors

    def tier(self, lease: dict[str, Any], table: str) -> None:
        """Run a whole round of the table that ends well."""
        self.finish(self.claim(lease, table))

    def fail_round(self, lease: dict[str, Any], table: str, error: str) -> None:
        """Run a whole round of the table that fails with this error."""
        self.fail(self.claim(lease, table), error)

    def fail(self, claim: Claim, error: str, *, interrupted: bool = False) -> None:
        entry = HeartbeatEntry(claim.table_id, claim.tiering_epoch, error, interrupted=interrupted)
        answer = self._client.heartbeat(failed=[entry])
        assert not answer.failed_errors


async def require_unusable(conn_id: str, told: str) -> UnusableConnectionError:
    """Check that each way to use a connection refuses it, with a message that begins with this pattern."""
    hook = FlussHook(conn_id)
    works, message = hook.test_connection()
    assert not works
    assert re.match(told, message), message
    with pytest.raises(UnusableConnectionError, match=f"^{told}"):
        await hook.get_async_client()
    with pytest.raises(UnusableConnectionError, match=f"^{told}"):
        async with hook.share_async_client():
            pass
    with pytest.raises(UnusableConnectionError, match=f"^{told}") as error:
        hook.get_client()
    return error.value


def is_shown_alone(error: BaseException) -> bool:
    """Whether the log of a task shows an error without the errors that led to it."""
    return "".join(traceback.format_exception(error)).count("Traceback (most recent call last)") == 1
