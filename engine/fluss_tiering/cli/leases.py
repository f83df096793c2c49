"""`fluss-tiering leases`: list KV snapshot leases and drop them."""

from __future__ import annotations

from typing import Annotated

import typer

from fluss_tiering.cli.common import options, output
from fluss_tiering.cli.common.command import Command
from fluss_tiering.cli.common.output import Heading
from fluss_tiering.client import DEFAULT_TARGET, TieringClient
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.tiering import KvSnapshotLease, LeaseDrop

app = typer.Typer(help="List KV snapshot leases, or drop one.", no_args_is_help=True)


@app.command("list", cls=Command)
def list_leases(server: options.Server = DEFAULT_TARGET, json: options.Json = False) -> None:
    """Show all KV snapshot leases."""
    with TieringClient(server) as client:
        leases = client.list_leases()
    if json:
        output.print_json(_as_json(each) for each in leases)
        return
    output.print_table(
        None,
        [
            Heading("Lease"),
            Heading("Acquired", spare=1),
            Heading("Expires"),
            Heading("Tables", numeric=True, spare=2),
            Heading("KV snapshots", numeric=True),
        ],
        (
            [
                output.text_cell(lease.lease_id),
                output.ago_cell(lease.acquired_time),
                output.ago_cell(lease.expiration_time),
                output.count_cell(len({bucket.table_id for bucket in lease.snapshots})),
                output.count_cell(len(lease.snapshots)),
            ]
            for lease in leases
        ),
        empty="There are no KV snapshot leases.",
    )


@app.command("drop", cls=Command)
def drop_lease(
    lease_id: Annotated[
        str,
        typer.Argument(metavar="LEASE_ID", help="The id of the lease, as `leases list` shows it.", show_default=False),
    ],
    server: options.Server = DEFAULT_TARGET,
) -> None:
    """Drop a lease.

    KV snapshots that no other lease pins may then be deleted, and a round that reads them fails.
    """
    with TieringClient(server) as client:
        outcome = client.drop_lease(lease_id)
    if outcome is not LeaseDrop.DROPPED:
        raise FlussTieringError(
            ErrorCode.KV_SNAPSHOT_LEASE_NOT_EXIST, f"there is no lease {lease_id!r}: see `fluss-tiering leases list`"
        )
    output.print_sentence(f"Dropped lease {output.text_cell(lease_id)}.")


def _as_json(lease: KvSnapshotLease) -> dict[str, object]:
    return {
        "lease_id": lease.lease_id,
        "acquired_time": output.iso_time(lease.acquired_time),
        "expiration_time": output.iso_time(lease.expiration_time),
        "attempt_token": lease.attempt_token,
        "snapshots": [
            {
                "table_id": bucket.table_id,
                "partition_id": bucket.partition_id,
                "bucket_id": bucket.bucket,
                "snapshot_id": snapshot_id,
            }
            for bucket, snapshot_id in lease.snapshots.items()
        ],
    }
