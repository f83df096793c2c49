"""Go on with the attempt under a lease id, begin a new one, or release the lease.

Airflow runs an acquire task again when it is retried, but also when a person clears any task of its task group: then
Airflow clears the acquire tasks of all mapped instances. A new attempt would end what the submit tasks of the others
run, so an attempt goes on for as long as something may run under it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider_fluss.submit_task import SubmitState
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import OUTCOMES, LeaseDrop, LeaseOutcome, TieringState

if TYPE_CHECKING:
    import logging

    from airflow.sdk.types import Logger

    from airflow_provider_fluss.lease import LeaseHandle
    from fluss_tiering.client import TieringClient


def continue_or_begin(
    client: TieringClient,
    lease_id: str,
    paths: Sequence[TablePath],
    duration_ms: int,
    *,
    submit: SubmitState | None,
    log: Logger | logging.Logger,
) -> int:
    """Return the token of the newest attempt if it lives, and renew its lease; else begin an attempt.

    An attempt that goes on keeps the KV snapshots that its lease pins, because running splits read them. A new attempt
    pins the latest ones.

    Args:
        client: A client of the tiering server.
        lease_id: The id of the lease.
        paths: The tables of the lease.
        duration_ms: The time in milliseconds after which the lease expires unless it is renewed.
        submit: What the submit task of the lease may still do; None if it is not known, or if it will run after this.
        log: The logger for what was done.

    Raises:
        AirflowFailException: No attempt began under this lease, but its submit task has succeeded and will not run.
        FlussTieringError: See `lease_latest_snapshots`. UNSUPPORTED_VERSION if the server has no leases.
    """
    from fluss_tiering.client import lease_latest_snapshots  # noqa: PLC0415 - gRPC is not needed to parse a DAG

    outcome = client.lease_outcome(lease_id)
    newest = outcome.newest_attempt_token
    named = ", ".join(map(str, paths))
    if newest is not None:
        renewed = not isinstance(client.renew_leases({lease_id: duration_ms})[lease_id], FlussTieringError)
        if why := _why_it_lives(outcome, newest, paths, submit, renewed=renewed):
            log.info("Lease %s goes on for %s with the attempt token %d, because %s", lease_id, named, newest, why)
            return newest
    elif submit is not None and submit.ended and not submit.claims_over:
        raise AirflowFailException(
            f"Nothing would tier {named}: the submit task {submit.words} in this run already, under another lease. "
            f"A table was dropped and created again since, or the mapping has changed. Clear the submit task, too"
        )
    acquired = lease_latest_snapshots(client, lease_id, paths, duration_ms)
    log.info("Acquired lease %s (attempt token %d) for %s", lease_id, acquired.attempt_token, named)
    return acquired.attempt_token


def _why_it_lives(
    outcome: LeaseOutcome, newest: int, paths: Sequence[TablePath], submit: SubmitState | None, *, renewed: bool
) -> str | None:
    """Return why the newest attempt goes on, or None if it is over."""
    if submit is not None and submit.ended:
        return f"its submit task will not run again ({submit.words})"
    if outcome.cancelled_reason is not None:
        return None
    if submit is not None:
        return f"its submit task {submit.words}"
    rounds = [each for each in outcome.rounds if each.attempt_token == newest and each.path in paths]
    if running := [str(each.path) for each in rounds if each.state not in OUTCOMES]:
        return f"it tiers {', '.join(running)}"
    has_failed = any(each.state is TieringState.FAILED for each in rounds)
    is_unfinished = len(rounds) < len(set(paths))
    return "it has begun and nothing ran under it yet" if renewed and is_unfinished and not has_failed else None


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
