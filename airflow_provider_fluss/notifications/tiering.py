"""The notifier for `on_failure_callback`. It tells other notifiers which tables were not tiered, and why."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import BaseNotifier

from airflow_provider_fluss.callbacks import lease_of, lease_values
from airflow_provider_fluss.hooks.fluss import FlussHook
from airflow_provider_fluss.notifications.report import (
    TieringFailure,
    UntieredTable,
    failed_tables,
    one_line,
    untiered_of_lease,
)
from airflow_provider_fluss.operators.maintenance import FlussMaintenanceOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from fluss_tiering.client import TieringClient

CALL_TIMEOUT_SECONDS: Final = 5.0


class FlussTieringNotifier(BaseNotifier):
    """Tell through other notifiers which tables were not tiered.

    Use it as the `on_failure_callback` of a task or of a DAG. It asks the server about the tables of the failed task's
    lease, and passes a failure on to each of the other notifiers. Their templates see it as `fluss`, with the
    attributes of `TieringFailure`: `{{ fluss.subject }}`, `{{ fluss.message }}` and `{{ fluss.html }}` are whole texts,
    and `{{ fluss.tables }}` has for each table its status, epoch, cause and failures in a row. If the status of a table
    cannot be had, its cause says why, and the message has the error of the task as well. This is so if the server does
    not answer, if Airflow cannot look the connection up, or if the lease is malformed. For a task of maintenance, such
    as `FlussVerifyOperator`, the message has the error of the task only.

    Args:
        notifiers: One notifier, or several, that send the message, for example a `SmtpNotifier`.
        tables: The `database.table` of each table, for tasks without a lease. A text is one table. (templated)
        fluss_conn_id: The connection of the tiering server, for `tables`. (templated)
        kwargs: Other arguments of `BaseNotifier`.
    """

    template_fields: Sequence[str] = ("tables", "fluss_conn_id")

    def __init__(
        self,
        notifiers: BaseNotifier | Sequence[BaseNotifier],
        *,
        tables: Sequence[str] | str = (),
        fluss_conn_id: str = FlussHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.notifiers = [notifiers] if isinstance(notifiers, BaseNotifier) else list(notifiers)
        self.tables = tables
        self.fluss_conn_id = fluss_conn_id

    def notify(self, context: Context) -> None:
        """Pass the failure on to each notifier. The first error of a notifier is raised after all were called."""
        failure = self._failure(context)
        errors: list[Exception] = []
        for notifier in self.notifiers:
            try:
                # A notifier renders its templates in place, which would keep the first message for ever.
                copy.copy(notifier)({**context, "fluss": failure})
            except Exception as error:  # noqa: BLE001 - whatever ails a notifier, the others are called
                errors.append(error)
        if errors:
            raise errors[0]

    def _failure(self, context: Context) -> TieringFailure:
        found = self._found(context)
        ti: Any = context.get("ti") if "reason" not in context else None
        error = context.get("exception") or context.get("reason")
        return TieringFailure(
            dag_id=context["dag"].dag_id,
            run_id=context["run_id"],
            task=None if ti is None else _name(ti),
            error=one_line(error) if error else None,
            total=len(found.names),
            tables=tuple(found.untiered),
            log_url=None if ti is None else getattr(ti, "log_url", None),
            unknown="; ".join(found.unknown) or None,
        )

    def _found(self, context: Context) -> _Found:
        """Return what is known of all tables. Whatever fails here is a part of the message."""
        found = _Found()
        if isinstance(context.get("task"), FlussMaintenanceOperator):
            # It does not tier, so that whether its tables were tiered says nothing about its failure.
            return found
        try:
            for value in lease_values(context):
                self._look_at_lease(value, context, found)
        except Exception as error:
            self.log.exception("The leases of the failed task could not be read")
            found.unknown.append(_why(error))
        self._look(_names(self.tables), self.fluss_conn_id, failed_tables, found)
        return found

    def _look_at_lease(self, value: object, context: Context, found: _Found) -> None:
        try:
            lease = lease_of(value, context)
        except Exception as error:  # noqa: BLE001 - a malformed lease must not keep the message back
            tables = _names(value.get("tables")) if isinstance(value, Mapping) else []
            found.add_unknown(tables, _why(error))
        else:
            self._look(lease.tables, lease.fluss_conn_id, lambda client, _: untiered_of_lease(client, lease), found)

    def _look(self, tables: Iterable[str], conn_id: str, ask: _Question, found: _Found) -> None:
        """Ask the server of a connection about those tables that are not known yet."""
        rest = [table for table in dict.fromkeys(tables) if table not in found.names]
        if not rest:
            return
        try:
            with FlussHook(conn_id, timeout=CALL_TIMEOUT_SECONDS).get_client() as client:
                untiered = ask(client, rest)
        except Exception as error:  # noqa: BLE001 - whatever keeps the server from answering, people are told
            found.add_unknown(rest, _why(error))
        else:
            found.names.update(dict.fromkeys(rest))
            found.untiered += (each for each in untiered if each.table in rest)


_Question = Callable[["TieringClient", Sequence[str]], Sequence[UntieredTable]]
"""Asks a server which of these tables were not tiered."""


@dataclass(slots=True)
class _Found:
    """What is known of the tables of a failure.

    Attributes:
        names: All tables that were to be tiered, in their order.
        untiered: Those that were not tiered.
        unknown: Why tables may be missing here.
    """

    names: dict[str, None] = field(default_factory=dict)
    untiered: list[UntieredTable] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def add_unknown(self, tables: Sequence[str], why: str) -> None:
        """Add tables whose status is not known; none if even their names are not."""
        if not tables:
            self.unknown.append(why)
        self.untiered += (UntieredTable(table, cause=why) for table in tables if table not in self.names)
        self.names.update(dict.fromkeys(tables))


def _names(tables: object) -> list[str]:
    """Return the names of tables. A text, which a template may render to, is one name."""
    if tables is None or isinstance(tables, str) or not isinstance(tables, Iterable):
        return [str(tables)] if tables else []
    return [str(table) for table in tables]


def _why(error: Exception) -> str:
    return one_line(error) or type(error).__name__


def _name(ti: Any) -> str:  # noqa: ANN401 - a task instance, of which there are several classes
    index = getattr(ti, "map_index", -1)
    return ti.task_id if index is None or index < 0 else f"{ti.task_id}[{index}]"
