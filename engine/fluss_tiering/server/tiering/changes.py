"""Changes to tables and rounds that are computed first, written together, and only then taken over."""

from __future__ import annotations

import structlog

from fluss_tiering.model.tiering import TieringRound, TieringState
from fluss_tiering.server.store.protocol import StoreTransaction
from fluss_tiering.server.tiering.states import TieredTable

log = structlog.get_logger(__name__)


class TieringChanges:
    """What one call changes, over the tables as they were: later steps of the call see its earlier ones."""

    def __init__(self, tables: dict[int, TieredTable], kept_rounds: int) -> None:
        self._tables = tables
        self._kept_rounds = kept_rounds
        self._changed: dict[int, TieredTable] = {}
        self._rounds: dict[tuple[int, int], TieringRound] = {}

    def table(self, table_id: int) -> TieredTable | None:
        """The table as it is after the changes so far."""
        return self._changed.get(table_id) or self._tables.get(table_id)

    def tables(self) -> list[TieredTable]:
        """All tables as they are after the changes so far."""
        return list({**self._tables, **self._changed}.values())

    def round(self, table_id: int, tiering_epoch: int) -> TieringRound | None:
        """A round that these changes began or ended."""
        return self._rounds.get((table_id, tiering_epoch))

    def put(self, table: TieredTable, ended: TieringRound | None = None) -> None:
        """Changes a table; `ended` is the round that ended with it."""
        before = self.table(table.status.table_id)
        self._changed[table.status.table_id] = table
        begun = None if before is not None and table.round == before.round else table.round
        for tiering_round in (ended, begun):
            if tiering_round is not None:
                self._rounds[tiering_round.table_id, tiering_round.tiering_epoch] = tiering_round

    def is_durable(self) -> bool:
        """Whether anything has to be written: a heartbeat alone has not."""
        return any(
            table_id not in self._tables or table.status != self._tables[table_id].status
            for table_id, table in self._changed.items()
        )

    def write(self, transaction: StoreTransaction) -> None:
        """Writes all of it."""
        transaction.put_statuses([table.status for table in self._changed.values()])
        transaction.put_rounds(list(self._rounds.values()))
        transaction.prune_rounds({table_id for table_id, _ in self._rounds}, self._kept_rounds)

    def take_over(self) -> None:
        """Changes the tables, once all of it is durable, and logs what happened."""
        self._tables.update(self._changed)
        for tiering_round in self._rounds.values():
            _log_round(tiering_round)


def _log_round(tiering_round: TieringRound) -> None:
    bound = log.bind(table=str(tiering_round.path), epoch=tiering_round.tiering_epoch, lease_id=tiering_round.lease_id)
    if tiering_round.state is TieringState.FAILED:
        bound.warning("round failed", error=tiering_round.error)
    elif tiering_round.state is TieringState.TIERED:
        rows = tiering_round.stats.rows if tiering_round.stats else None
        bound.info("round tiered", rows=rows, force_finished=tiering_round.force_finished)
    else:
        bound.info("round began", attempt_token=tiering_round.attempt_token, driver=tiering_round.driver)
