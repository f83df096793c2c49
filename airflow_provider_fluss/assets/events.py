"""The events of assets that a waiting task records for the tables that were tiered."""

from __future__ import annotations

import logging
import urllib.parse
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetAlias

from airflow_provider_fluss.assets.table import SCHEME, create_asset
from fluss_tiering.model.tiering import TieringState

if TYPE_CHECKING:
    from airflow.sdk import Context

logger = logging.getLogger(__name__)


def record_lake_assets(
    context: Context, rounds: Iterable[Mapping[str, Any]], server: str, *, partition_keys: bool = False
) -> None:
    """Record an event of its asset for each table that was tiered, as far as the task has outlets for it.

    An outlet that is an `AssetAlias` gets an event for each table: use it if the tables are known only when the task
    runs. An outlet that is the asset of one of the tables gets the details of its round. The extra of an event has the
    keys `table`, `tiering_epoch`, `lake_snapshot_id`, `rows`, `bytes`, `files` and `partitions`, which are those whose
    rows changed. A round without new rows, which commits no lake snapshot, is not an event of an alias. Airflow itself
    makes an event for each asset that is an outlet. An outlet that is the asset of a tiered table on another server
    gets no details, and is warned of.

    Args:
        context: The context of the task.
        rounds: The summaries of rounds that the sensor returns.
        server: The address of the tiering server as `host:port`.
        partition_keys: Whether an outlet that is the asset of a table gets an event for each partition whose rows
            changed, with its name as the partition key. Events with a key start no DAG that is scheduled by the asset
            alone.
    """
    outlets = list(context.get("outlets") or ())
    aliases = [each for each in outlets if isinstance(each, AssetAlias)]
    assets = {each.uri: each for each in outlets if isinstance(each, Asset)}
    if not aliases and not assets:
        return
    for tiered in rounds:
        if tiered["status"] != TieringState.TIERED:
            continue
        asset = create_asset(tiered["table"], server=server)
        extra = event_extra(tiered)
        if asset.uri in assets:
            event = context["outlet_events"][assets[asset.uri]]
            event.extra.update(extra)
            if partition_keys and extra["partitions"]:
                event.add_partitions(extra["partitions"])
            continue
        _warn_of_other_servers(asset, assets)
        if extra["lake_snapshot_id"] is not None:
            for alias in aliases:
                context["outlet_events"][alias].add(asset, extra=extra)


def _warn_of_other_servers(asset: Asset, outlets: Iterable[str]) -> None:
    """Warn of outlets that name the same table with another server: their events have no details."""
    tiered = urllib.parse.urlsplit(asset.uri)
    for uri in outlets:
        other = urllib.parse.urlsplit(uri)
        if other.scheme == SCHEME and other.path == tiered.path:
            logger.warning(
                "The outlet %s names the server %s, but the connection of this task leads to %s, so its event has no "
                "details of the round: write create_asset(..., server=%r)",
                uri,
                other.netloc,
                tiered.netloc,
                tiered.netloc,
            )


def event_extra(tiered: Mapping[str, Any]) -> dict[str, Any]:
    """Return the extra of an event from the summary of its round."""
    keys = ("table", "tiering_epoch", "lake_snapshot_id", "rows", "bytes", "files", "partitions")
    return {key: tiered[key] for key in keys}
