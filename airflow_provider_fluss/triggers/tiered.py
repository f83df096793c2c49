"""The trigger of an asset's watcher: it fires whenever a table was tiered, whoever tiered it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from airflow_provider_fluss.hooks.fluss import FlussHook
from fluss_tiering.model.errors import SERVER_AWAY, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import StatusChanges, TieringRound, TieringState

if TYPE_CHECKING:
    from fluss_tiering.client import AsyncTieringClient

DEFAULT_RETRY_SECONDS: Final = 5.0
_LONGEST_PAUSE_SECONDS: Final = 60.0
"""The longest pause between two tries while the connection is not usable, unless `retry_seconds` is longer."""
_ROUNDS: Final = 100
"""How many of the newest rounds are looked at, which is as many as the server keeps of a table by default."""


class FlussTableTieredTrigger(BaseEventTrigger):
    """Fire whenever a round has committed new rows of a table to the lake.

    Use it in an `AssetWatcher`, so that a DAG starts when the table was tiered, also by a command or another Airflow.
    The payload of the event has the keys `table`, `tiering_epoch`, `lake_snapshot_id`, `rows`, `bytes`, `files`,
    `partitions` and `rounds`. Several rounds since the last event can be one event: `rounds` is their number, and the
    other details are those of the newest one. A round without new rows is no event, and does not hide an earlier one
    with rows.

    The trigger watches a stream of the server and does not poll. If the server is away, or if there is no such table,
    it tries again. From Airflow 3.3 on it remembers the last event with the asset, so that a round while the triggerer
    was down is an event, too.

    Args:
        table: The `database.table`.
        fluss_conn_id: The connection of the tiering server.
        retry_seconds: The time in seconds after which the trigger watches again after an error. While the
            connection is not usable, the pauses grow to a minute.
    """

    def __init__(
        self,
        table: str,
        fluss_conn_id: str = FlussHook.default_conn_name,
        retry_seconds: float = DEFAULT_RETRY_SECONDS,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.table = table
        self.fluss_conn_id = fluss_conn_id
        self.retry_seconds = retry_seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the path of the class and the arguments with which Airflow starts the trigger again."""
        return (
            "airflow_provider_fluss.triggers.tiered.FlussTableTieredTrigger",
            {"table": self.table, "fluss_conn_id": self.fluss_conn_id, "retry_seconds": self.retry_seconds},
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Watch the table for ever, and fire an event after each round that committed rows."""
        path, client = await self._prepare()
        async with client:
            known = await self._remembered()
            said = ""
            while True:
                try:
                    async for changes in client.watch_tiering_statuses([path]):
                        said = ""
                        tiered = _last_tiered_time(changes)
                        if known is not None and (tiered is None or tiered <= known):
                            continue
                        rounds = await _tiered_since(client, path, known or 0)
                        with_rows = [each for each in rounds if _has_rows(each)]
                        if known is not None and with_rows:
                            yield TriggerEvent(_payload(with_rows))  # type: ignore[no-untyped-call]
                        # The newest round may be newer than the status.
                        known = max([tiered or 0, *(each.end_time or 0 for each in rounds)])
                        await self._remember(known)
                except FlussTieringError as error:
                    if error.message != said:
                        said = error.message
                        away = "is unavailable" if error.code in SERVER_AWAY else "refuses the watch"
                        self.log.warning("The tiering server %s, trying again: %s", away, said)
                await asyncio.sleep(self.retry_seconds)

    async def _prepare(self) -> tuple[TablePath, AsyncTieringClient]:
        """Return the table and a client, once the connection is usable. Airflow starts a trigger that ends again.

        Until then this says once what is wrong, and tries again with pauses that become longer.
        """
        said = ""
        pause = self.retry_seconds
        while True:
            try:
                return TablePath.parse(self.table), await FlussHook(self.fluss_conn_id).get_async_client()
            except Exception as error:  # noqa: BLE001 - if the trigger ended, Airflow would start it again at once
                if str(error) != said:
                    said = str(error)
                    self.log.warning("Table %s cannot be watched, trying again: %s", self.table, said)
            await asyncio.sleep(pause)
            pause = max(self.retry_seconds, min(2 * pause, _LONGEST_PAUSE_SECONDS))

    async def _remembered(self) -> int | None:
        """Return when the table of the last event was tiered, or None if this is the first watch."""
        values = [await store.aget(self._key) for store in self._stores()]
        # If a write reached only some of the assets, a round becomes two events rather than none.
        return min((value for value in values if isinstance(value, int)), default=None)

    async def _remember(self, tiered_time: int) -> None:
        for store in self._stores():
            await store.aset(self._key, tiered_time)

    def _stores(self) -> list[Any]:
        """Return what Airflow keeps for each asset of this trigger. Watchers with the same arguments share one trigger.

        Airflow's own accessor refuses to read or write if there are several assets, and the trigger does not know their
        names, by which it could ask for them.
        """
        store = getattr(self, "asset_state_store", None)
        return [each for kind in ("_by_name", "_by_uri") for each in getattr(store, kind, {}).values()]

    @property
    def _key(self) -> str:
        return f"fluss-last-tiered-{self.fluss_conn_id}-{self.table}"


def _last_tiered_time(changes: StatusChanges) -> int | None:
    """Return when the table was last tiered. Only one table is watched, so there is at most one status."""
    return next((each.last_tiered_time for each in changes.statuses), None)


async def _tiered_since(client: AsyncTieringClient, path: TablePath, known: int) -> list[TieringRound]:
    """Return the rounds that tiered the table after a time in milliseconds since the epoch, the newest one first."""
    rounds = await client.list_tiering_rounds(path, limit=_ROUNDS)
    return [each for each in rounds if each.state is TieringState.TIERED and (each.end_time or 0) > known]


def _has_rows(tiered: TieringRound) -> bool:
    """Return whether a round committed rows. One whose driver did not report what it wrote may have."""
    return tiered.stats is None or tiered.stats.lake_snapshot_id is not None


def _payload(rounds: Sequence[TieringRound]) -> dict[str, Any]:
    tiered = rounds[0]
    stats = tiered.stats
    return {
        "table": str(tiered.path),
        "tiering_epoch": tiered.tiering_epoch,
        "lake_snapshot_id": stats.lake_snapshot_id if stats else None,
        "rows": stats.rows if stats else None,
        "bytes": stats.bytes if stats else None,
        "files": stats.files if stats else None,
        "partitions": list(stats.partitions) if stats else [],
        "rounds": len(rounds),
    }
