"""The notifier for `on_failure_callback`. It tells other notifiers which tables were not tiered, and why."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import BaseNotifier

from airflow_provider_fluss.callbacks import leases_of
from airflow_provider_fluss.hooks.fluss import FlussHook
from airflow_provider_fluss.notifications.report import (
    TieringFailure,
    UntieredTable,
    failed_tables,
    one_line,
    untiered_of_lease,
)
from fluss_tiering.model.errors import FlussTieringError

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_fluss.lease import LeaseHandle

CALL_TIMEOUT_SECONDS: Final = 5.0


class FlussTieringNotifier(BaseNotifier):
    """Tell through other notifiers which tables were not tiered.

    Use it as the `on_failure_callback` of a task or of a DAG. It asks the server about the tables of the failed task's
    lease, and passes a failure on to each of the other notifiers. Their templates see it as `fluss`, with the
    attributes of `TieringFailure`: `{{ fluss.subject }}`, `{{ fluss.message }}` and `{{ fluss.html }}` are whole texts,
    and `{{ fluss.tables }}` has for each table its status, epoch, cause and failures in a row. If the server does not
    answer, the failure has the tables and the error of the task.

    Args:
        notifiers: One notifier, or several, that send the message, for example a `SmtpNotifier`.
        tables: The `database.table` of each table, for tasks without a lease. (templated)
        fluss_conn_id: The connection of the tiering server, for `tables`. (templated)
        kwargs: Other arguments of `BaseNotifier`.
    """

    template_fields: Sequence[str] = ("tables", "fluss_conn_id")

    def __init__(
        self,
        notifiers: BaseNotifier | Sequence[BaseNotifier],
        *,
        tables: Sequence[str] = (),
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
        names, untiered = self._untiered(context)
        ti: Any = context.get("ti") if "reason" not in context else None
        error = context.get("exception") or context.get("reason")
        return TieringFailure(
            dag_id=context["dag"].dag_id,
            run_id=context["run_id"],
            task=None if ti is None else _name(ti),
            error=one_line(error) if error else None,
            total=len(names),
            tables=tuple(untiered),
            log_url=None if ti is None else getattr(ti, "log_url", None),
        )

    def _untiered(self, context: Context) -> tuple[list[str], list[UntieredTable]]:
        """Return the names of all tables, and what is known of those that were not tiered."""
        names: dict[str, None] = {}
        untiered: list[UntieredTable] = []
        for lease in self._leases(context):
            names.update(dict.fromkeys(lease.tables))
            try:
                with FlussHook(lease.fluss_conn_id, timeout=CALL_TIMEOUT_SECONDS).get_client() as client:
                    untiered += untiered_of_lease(client, lease)
            except (FlussTieringError, ValueError) as error:
                untiered += (UntieredTable(table, cause=one_line(error)) for table in lease.tables)
        rest = [table for table in self.tables if table not in names]
        names.update(dict.fromkeys(rest))
        if rest:
            try:
                with FlussHook(self.fluss_conn_id, timeout=CALL_TIMEOUT_SECONDS).get_client() as client:
                    untiered += failed_tables(client, rest)
            except (FlussTieringError, ValueError) as error:
                untiered += (UntieredTable(table, cause=one_line(error)) for table in rest)
        return list(names), untiered

    def _leases(self, context: Context) -> list[LeaseHandle]:
        try:
            return list(leases_of(context))
        except Exception:
            self.log.exception("The leases of the failed task could not be read")
            return []


def _name(ti: Any) -> str:  # noqa: ANN401 - a task instance, of which there are several classes
    index = getattr(ti, "map_index", -1)
    return ti.task_id if index is None or index < 0 else f"{ti.task_id}[{index}]"
