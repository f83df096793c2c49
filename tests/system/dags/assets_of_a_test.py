"""A DAG that starts when a table was tiered. Its table does not exist when the file is parsed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import AssetAlias, AssetWatcher, dag, task

from airflow_provider_fluss.assets.table import create_asset
from airflow_provider_fluss.operators.lease import FlussAcquireKvSnapshotLeaseOperator
from airflow_provider_fluss.sensors.status import FlussTieringStatusSensor
from airflow_provider_fluss.triggers.tiered import FlussTableTieredTrigger

WATCHED = create_asset("system.watched", server="tiering.example")
WATCHED.watchers.append(AssetWatcher(name="tiered", trigger=FlussTableTieredTrigger("system.watched", retry_seconds=1)))
ALSO_WATCHED = create_asset("system.watched", server="another-name-of-tiering.example")
ALSO_WATCHED.watchers.extend(WATCHED.watchers)
TIERED = AssetAlias("tiered_in_a_test")


@dag(schedule=[WATCHED])
def starts_when_tiered() -> None:
    @task
    def seen(triggering_asset_events: Any = None) -> list[dict[str, Any]]:
        return [event.extra["payload"] for event in triggering_asset_events[WATCHED]]

    seen()


@dag(schedule=[ALSO_WATCHED])
def also_starts_when_tiered() -> None:
    @task
    def seen(triggering_asset_events: Any = None) -> list[dict[str, Any]]:
        return [event.extra["payload"] for event in triggering_asset_events[ALSO_WATCHED]]

    seen()


@dag(schedule=None, params={"tables": []}, render_template_as_native_obj=True)
def tells_what_it_tiered() -> None:
    acquire = FlussAcquireKvSnapshotLeaseOperator(task_id="acquire", tables="{{ params.tables }}")
    wait = FlussTieringStatusSensor(
        task_id="wait",
        lease=acquire.output,
        poke_interval=1,
        deferrable=True,
        outlets=[TIERED],
        # A busy scheduler takes a task for lost that goes on before the process that deferred it has ended.
        retries=2,
        retry_delay=timedelta(seconds=1),
    )
    acquire >> wait


@dag(schedule=[TIERED])
def starts_when_told() -> None:
    @task
    def seen(triggering_asset_events: Any = None) -> list[dict[str, Any]]:
        return [event.extra for events in triggering_asset_events.values() for event in events]

    seen()


starts_when_tiered()
also_starts_when_tiered()
tells_what_it_tiered()
starts_when_told()
