"""What a failed task or run means for the tables that it was to tier, as values for the templates of messages."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fluss_tiering.model.error_text import mask_secrets
from fluss_tiering.model.errors import SERVER_AWAY, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import TieringRound, TieringState, TieringStatus
from fluss_tiering.plural import counted

if TYPE_CHECKING:
    from airflow_provider_fluss.lease import LeaseHandle
    from fluss_tiering.client import TieringClient


@dataclass(frozen=True, slots=True)
class UntieredTable:
    """A table that was not tiered.

    Attributes:
        table: The `database.table`.
        status: How its round ended or stands, or the status of the table if no round of it began. It is None if the
            server did not answer.
        epoch: The tiering epoch of the round, or the newest one of the table; None if the server did not answer.
        cause: Why the round failed, in one line; None if no reason is known.
        failures: How many rounds of the table have failed in a row.
        parked: Whether the table is not tried again until somebody resumes it.
    """

    table: str
    status: str | None = None
    epoch: int | None = None
    cause: str | None = None
    failures: int = 0
    parked: bool = False

    def __str__(self) -> str:
        """Return the table with its status, epoch, failures and cause in one line."""
        facts = [self.status or "status unknown"]
        if self.epoch is not None:
            facts.append(f"epoch {self.epoch}")
        if self.failures:
            facts.append(f"{counted(self.failures, 'failure')} in a row")
        if self.parked:
            facts.append("parked until it is resumed")
        return f"{self.table} ({', '.join(facts)}): {self.cause or 'no reason is known'}"


@dataclass(frozen=True, slots=True)
class TieringFailure:
    """What failed, for the templates of messages: `{{ fluss.subject }}`, `{{ fluss.message }}`, `{{ fluss.html }}`.

    Attributes:
        dag_id: The DAG.
        run_id: The run of the DAG.
        task: The failed task, with its map index if it is mapped; None if the whole run failed.
        error: The error of the task or the reason of the run's failure, in one line; None if there is none.
        total: The number of tables that were to be tiered.
        tables: Those of them that were not tiered.
        log_url: The address of the task's log; None if the whole run failed.
        unknown: Why tables may be missing here, in one line; None if all tables are known.
    """

    dag_id: str
    run_id: str
    task: str | None
    error: str | None
    total: int
    tables: tuple[UntieredTable, ...]
    log_url: str | None = None
    unknown: str | None = None

    @property
    def subject(self) -> str:
        """One line for the subject of a mail."""
        if not self.tables:
            return f"{self.dag_id}: {self._where} failed"
        return f"{self.dag_id}: {self._summary}"

    @property
    def message(self) -> str:
        """The whole message as plain text."""
        lines = [f"{_begun(self._where)} of {self.dag_id} failed in {self.run_id}."]
        if self.tables:
            lines += [f"{_begun(self._summary)}:", *(f"- {table}" for table in self.tables)]
        lines += self._reasons
        if self.log_url:
            lines.append(f"Log: {self.log_url}")
        return "\n".join(lines)

    @property
    def html(self) -> str:
        """The whole message as HTML."""
        where = html.escape(_begun(self._where))
        parts = [f"<p>{where} of <b>{html.escape(self.dag_id)}</b> failed in {html.escape(self.run_id)}.</p>"]
        if self.tables:
            items = "".join(f"<li>{html.escape(str(table))}</li>" for table in self.tables)
            parts.append(f"<p>{html.escape(_begun(self._summary))}:</p><ul>{items}</ul>")
        parts += [f"<p>{html.escape(reason)}</p>" for reason in self._reasons]
        if self.log_url:
            parts.append(f'<p><a href="{html.escape(self.log_url)}">Log of the task</a></p>')
        return "".join(parts)

    @property
    def _reasons(self) -> list[str]:
        """What the tables themselves do not tell."""
        unknown = [f"The tables of the task are not all known: {self.unknown}"] if self.unknown else []
        if not self.tables:
            return [self.error or "No reason is known.", *unknown]
        is_missing = any(table.status is None or table.cause is None for table in self.tables)
        return [*([f"Error of the task: {self.error}"] if is_missing and self.error and self.task else []), *unknown]

    @property
    def _where(self) -> str:
        return "the run" if self.task is None else f"task {self.task}"

    @property
    def _summary(self) -> str:
        """How many tables were not tiered, and of how many this is not known."""
        unknown = sum(table.status is None for table in self.tables)
        untiered = len(self.tables) - unknown
        of_all = f"of {counted(self.total, 'table')}"
        parts = [f"{untiered} {of_all} {'was' if untiered == 1 else 'were'} not tiered"] if untiered else []
        if unknown:
            parts.append(f"the status of {unknown}{'' if untiered else f' {of_all}'} is not known")
        return ", and ".join(parts)


def untiered_of_lease(client: TieringClient, lease: LeaseHandle) -> list[UntieredTable]:
    """Return the tables of a lease that its attempt has not tiered, in the order of the lease.

    Raises:
        FlussTieringError: UNAVAILABLE if the server cannot be reached.
    """
    rounds = {str(each.path): each for each in client.lease_outcome(lease.lease_id, lease.attempt_token).rounds}
    left = [table for table in lease.tables if table not in rounds or rounds[table].state is not TieringState.TIERED]
    return list(_untiered(client, left, rounds))


def failed_tables(client: TieringClient, tables: Iterable[str]) -> list[UntieredTable]:
    """Return those of the tables whose last round failed, and those without a status.

    Raises:
        FlussTieringError: UNAVAILABLE if the server cannot be reached.
    """
    found = _untiered(client, tables, {})
    return [each for each in found if each.failures or each.status in {None, TieringState.FAILED.value}]


def one_line(error: object) -> str | None:
    """Return the text of an error in one line without secrets, or None if it has none."""
    return " ".join(mask_secrets(str(error)).split()) or None


def _begun(sentence: str) -> str:
    """Return a sentence with a capital letter at its beginning. The names in it stay as they are."""
    return sentence[:1].upper() + sentence[1:]


def _untiered(
    client: TieringClient, tables: Iterable[str], rounds: Mapping[str, TieringRound]
) -> Iterable[UntieredTable]:
    for table in tables:
        try:
            (status,) = client.list_tiering_statuses(TablePath.parse(table))
        except FlussTieringError as error:
            if error.code in SERVER_AWAY:
                raise
            # The table may have been dropped, or is not tiered any more.
            yield _of(table, rounds.get(table), None, one_line(error.message))
        else:
            yield _of(table, rounds.get(table), status, None)


def _of(
    table: str, tiering_round: TieringRound | None, status: TieringStatus | None, error: str | None
) -> UntieredTable:
    known = tiering_round or status
    if tiering_round is not None:
        error = tiering_round.error or error
    elif status is not None:
        error = status.last_error
    return UntieredTable(
        table,
        status=known.state.value if known else None,
        epoch=known.tiering_epoch if known else None,
        cause=one_line(error) if error else None,
        failures=status.consecutive_failures if status else 0,
        parked=status.parked if status else False,
    )
