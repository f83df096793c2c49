"""Release a lease. The release task and the failure callbacks share this."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.tiering import OUTCOMES, LeaseDrop

if TYPE_CHECKING:
    import logging

    from airflow.sdk.types import Logger

    from airflow_provider_fluss.lease import LeaseHandle
    from fluss_tiering.client import TieringClient


def release_lease(client: TieringClient, lease: LeaseHandle, reason: str, log: Logger | logging.Logger) -> None:
    """Cancel the attempt unless all of its rounds have ended, and then drop the lease. A repeated call changes nothing.

    The cancel comes first, because the application may still run after its task has ended. The server then refuses the
    next claim, heartbeat and commit of the application, so that it does not read snapshots that the drop unpins. Both
    calls carry the attempt token, so that they never touch a newer attempt.

    Args:
        client: A client of the server that granted the lease.
        lease: The lease to release.
        reason: The reason that is recorded with the cancelled rounds.
        log: The logger for the result.

    Raises:
        FlussTieringError: The server refused the call or could not be reached. The lease then ends when it expires.
    """
    rounds = client.lease_outcome(lease.lease_id, lease.attempt_token).rounds
    ended = {str(each.path) for each in rounds if each.state in OUTCOMES}
    if not ended.issuperset(lease.tables):
        client.cancel_tiering(lease.lease_id, lease.attempt_token, reason)
    match _drop(client, lease):
        case LeaseDrop.DROPPED:
            log.info("Released lease %s of %s", lease.lease_id, ", ".join(lease.tables))
        case LeaseDrop.UNKNOWN:
            log.info("There is nothing left to release of lease %s", lease.lease_id)
        case LeaseDrop.STALE:
            log.warning(
                "Lease %s was not released: a newer attempt than %s holds it", lease.lease_id, lease.attempt_token
            )


def _drop(client: TieringClient, lease: LeaseHandle) -> LeaseDrop:
    try:
        return client.drop_lease(lease.lease_id, attempt_token=lease.attempt_token)
    except FlussTieringError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        return LeaseDrop.UNKNOWN  # A server without leases pins nothing.
