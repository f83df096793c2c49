"""Giving a lease up: the one way that the release task and the failure callbacks share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lease import LeaseDrop
from fluss_tiering.model.tiering import OUTCOMES

if TYPE_CHECKING:
    import logging

    from airflow.sdk.types import Logger

    from airflow_provider_fluss.lease import LeaseHandle
    from fluss_tiering.client import TieringClient


def release_lease(client: TieringClient, lease: LeaseHandle, reason: str, log: Logger | logging.Logger) -> None:
    """Cancel the attempt unless all of its rounds have ended, then drop the lease; repeating it changes nothing.

    The cancel comes first, since the application may have outlived its task: from then on it is refused at its next
    claim, heartbeat and commit, and no longer reads what the drop unpins. Both carry the attempt token, so that neither
    touches a newer attempt (L22).

    Raises:
        FlussTieringError: the server refused or could not be reached; whatever remains ends with the lease's expiry.
    """
    rounds = client.lease_outcome(lease.lease_id, lease.attempt_token).rounds
    ended = {str(each.path) for each in rounds if each.state in OUTCOMES}
    if not ended.issuperset(lease.tables):
        client.cancel_tiering(lease.lease_id, lease.attempt_token, reason)
    match _drop(client, lease):
        case LeaseDrop.DROPPED:
            log.info("Released lease %s of %s", lease.lease_id, ", ".join(lease.tables))
        case LeaseDrop.UNKNOWN:
            log.info("Lease %s pins nothing any more", lease.lease_id)
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
        return LeaseDrop.UNKNOWN  # A server without leases pins nothing (L15).
