"""Rounds that need no Spark: of tables whose log is in the lake already, and of those that cannot be tiered."""

from __future__ import annotations

import logging
import os
import socket
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import Claim, HeartbeatEntry, RoundOrigin, TieringStats, TieringStatus

if TYPE_CHECKING:
    from fluss_tiering.client.client import TieringClient

logger = logging.getLogger(__name__)


def records_waiting(client: TieringClient, paths: Sequence[TablePath]) -> dict[TablePath, int]:
    """Return for each table how many records of its log are not in the lake, as far as the server knows.

    A table that does not exist any more is left out.

    Raises:
        FlussTieringError: UNAVAILABLE if the server cannot be reached.
    """
    waiting = {}
    for path in paths:
        try:
            (buckets,) = client.list_buckets([path]).values()
            snapshot = client.lake_snapshot(path)
        except FlussTieringError as error:
            if error.code is not ErrorCode.TABLE_NOT_EXIST:
                raise
            continue
        tiered = {} if snapshot is None else snapshot.log_end_offsets
        # Records that were deleted before they were tiered wait, too: their round has to fail.
        waiting[path] = sum(max(0, each.log_end_offset - tiered.get(each.bucket, 0)) for each in buckets)
    return waiting


def finish_unchanged_tables(
    client: TieringClient,
    statuses: Sequence[TieringStatus],
    *,
    lease_id: str | None = None,
    attempt_token: int | None = None,
) -> dict[TablePath, Claim]:
    """Run the rounds of tables that have nothing new, without Spark, and return the claims of these rounds.

    Such a round is recorded as every other: the table is Tiered, nothing was written, and its freshness begins anew. A
    table is left out if it was never tiered, if its last round failed, or if another round holds it. So is one whose
    tiering was switched on again since its last round: only a round that opens the lake table notices that a Fluss
    cluster has made another, empty one.

    Args:
        client: The client of the tiering server.
        statuses: The statuses of the tables.
        lease_id: The lease under which the rounds run; None for a name of their own.
        attempt_token: The token of the lease's attempt.

    Raises:
        FlussTieringError: UNAVAILABLE if the server cannot be reached.
    """
    healthy = [
        each.path
        for each in statuses
        if each.last_tiered_time is not None
        and each.last_tiered_time > (each.switched_on_time or 0)
        and not each.consecutive_failures
    ]
    unchanged = [path for path, records in records_waiting(client, healthy).items() if records == 0]
    if not unchanged:
        return {}
    claims = _claimed(client, unchanged, lease_id, attempt_token)
    entries = [HeartbeatEntry(claim.table_id, claim.tiering_epoch, stats=TieringStats()) for claim in claims]
    refused = client.heartbeat(finished=entries).finished_errors if entries else {}
    for table_id, error in refused.items():
        logger.warning("the round of table %s without new rows was refused: %s", table_id, error)
    return {claim.path: claim for claim in claims if claim.table_id not in refused}


def fail_tables(
    client: TieringClient,
    errors: Mapping[TablePath, str],
    *,
    lease_id: str | None = None,
    attempt_token: int | None = None,
) -> dict[TablePath, Claim]:
    """Record a failed round of each table, without Spark, and return the claims of these rounds.

    A table that another round holds is left out.

    Args:
        client: The client of the tiering server.
        errors: Why each table cannot be tiered.
        lease_id: The lease under which the rounds run; None for a name of their own.
        attempt_token: The token of the lease's attempt.

    Raises:
        FlussTieringError: UNAVAILABLE if the server cannot be reached.
    """
    claims = _claimed(client, list(errors), lease_id, attempt_token) if errors else []
    entries = [
        HeartbeatEntry(
            claim.table_id,
            claim.tiering_epoch,
            error_message=errors[claim.path],
            coordinator_epoch=claim.coordinator_epoch,
        )
        for claim in claims
    ]
    refused = client.heartbeat(failed=entries).failed_errors if entries else {}
    return {claim.path: claim for claim in claims if claim.table_id not in refused}


def _claimed(
    client: TieringClient, paths: Sequence[TablePath], lease_id: str | None, attempt_token: int | None
) -> list[Claim]:
    lease_id = lease_id or f"fluss-tiering-{uuid.uuid4()}"
    driver = f"no Spark, on {socket.gethostname()}, process {os.getpid()}"
    origin = RoundOrigin.of_process(os.environ)
    claims = client.claim_tables(paths, lease_id, attempt_token, driver, origin=origin)
    return [claim for claim in claims if not isinstance(claim, FlussTieringError)]
