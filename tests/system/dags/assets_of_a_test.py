"""A DAG that starts when a table was tiered. Its table does not exist when the file is parsed."""

from __future__ import annotations

from typing import Any

from airflow.sdk import AssetWatcher, dag, task

from airflow_provider_fluss.assets.table import create_asset
from airflow_provider_fluss.triggers.tiered import FlussTableTieredTrigger

WATCHED = create_asset("system.watched", server="tiering.example")
WATCHED.watchers.append(AssetWatcher(name="tiered", trigger=FlussTableTieredTrigger("system.watched", retry_seconds=1)))


@dag(schedule=[WATCHED])
def starts_when_tiered() -> None:
    @task
    def seen(triggering_asset_events: Any = None) -> list[dict[str, Any]]:
        return [event.extra["payload"] for event in triggering_asset_events[WATCHED]]

    seen()


starts_when_tiered()
