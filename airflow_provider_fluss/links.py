"""Links from a task in Airflow to its tables on the page *Lake tiering*, and to its Spark application.

Airflow itself stores the links of a task only once the task has ended. These are stored as soon as they are known,
since a round that runs is what a person wants to look at.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode, urlsplit

from airflow import __version__ as airflow_version
from airflow.providers.common.compat.sdk import conf
from airflow.sdk import BaseOperatorLink

from airflow_provider_fluss.plugins.route import ROUTE

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import BaseOperator, Context
    from airflow.sdk.types import TaskInstanceKey

_OPENS_PAGES_IN_ITS_FRAME: Final = (3, 3)
"""The version since which an address within Airflow leads to any page of a plugin. Before, only to its first one."""
_SPARK_UI: Final = re.compile(
    r"(?:Spark's user interface is at|started at|(?P<yarn>tracking URL):) (?P<url>https?://\S+)"
)
"""How our application, Spark's log at INFO, and `spark-submit` to YARN tell the address."""


class LakeTieringLink(BaseOperatorLink):
    """Leads to the tables of a task on the page *Lake tiering*."""

    name = "Lake tiering"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the address of the task's table, or of the list of its tables; empty if they are not known."""
        return _address(operator)


class SparkUiLink(BaseOperatorLink):
    """Leads to the user interface of a task's Spark application while that runs, or to its job at the platform."""

    name = "Spark"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the address; empty if the task started no application, or if the application has ended."""
        return str(getattr(operator, "spark_ui", None) or "")


def _address(operator: BaseOperator) -> str:
    lease = getattr(operator, "lease", None)
    if isinstance(lease, Mapping):
        tables, conn = lease.get("tables"), lease.get("fluss_conn_id")
    else:
        tables, conn = getattr(operator, "tables", None), getattr(operator, "fluss_conn_id", None)
    if isinstance(tables, str) or not isinstance(tables, Sequence) or not tables:
        return ""
    return tables_href([str(table) for table in tables], str(conn))


def tables_href(tables: Sequence[str], conn: str) -> str:
    """Return the address of these tables on the page, relative to the base URL of Airflow's API server.

    Args:
        tables: The `database.table` of each table, at least one.
        conn: The id of the connection.
    """
    if len(tables) == 1:
        page = f"{ROUTE}/table?{urlencode({'conn': conn, 'table': tables[0]})}"
    else:
        page = f"{ROUTE}/?{urlencode([('conn', conn), *(('tables', table) for table in tables)])}"
    if tuple(int(part) for part in airflow_version.split(".")[:2]) < _OPENS_PAGES_IN_ITS_FRAME:
        return page
    # Within its navigation, Airflow takes what follows the name of the plugin for the whole path of the page.
    base_path = urlsplit(conf.get("api", "base_url", fallback="") or "").path.strip("/")
    return f"plugin/{ROUTE}/{base_path}{'/' if base_path else ''}{page}"


def store_table_link(operator: BaseOperator, context: Context) -> None:
    """Store the link to the task's tables now, and not only at the end of the task."""
    if address := _address(operator):
        context["ti"].xcom_push(key=LakeTieringLink().xcom_key, value=address)


def platform_address(operator: BaseOperator, context: Context) -> str:
    """Return where the first link of an operator leads that leads anywhere; empty if there is none."""
    for link in operator.operator_extra_links:
        # What a link needs is not there if the operator did not come so far.
        with suppress(Exception):
            if address := link.get_link(operator, ti_key=context["ti"]):  # type: ignore[arg-type] # as Airflow does
                return address
    return ""


def notice_spark_ui(hook: SparkSubmitHook, found: Callable[[str, bool], None]) -> None:
    """Tell the address of Spark's user interface once `spark-submit` prints it, and only once.

    Args:
        hook: The hook that runs `spark-submit`.
        found: Called with the address, and with whether it leads anywhere after the application has ended. Only that of
            YARN does, which then leads to the history of the application.
    """
    process: Callable[[Iterator[Any]], None] = hook._process_spark_submit_log  # noqa: SLF001 - there is no other way

    def process_noticing(itr: Iterator[Any]) -> None:
        process(noticing(itr))

    def noticing(lines: Iterable[Any]) -> Iterator[Any]:
        known = False
        for line in lines:
            if not known and (match := _SPARK_UI.search(str(line))):
                known = True
                found(match["url"], match["yarn"] is not None)
            yield line

    hook._process_spark_submit_log = process_noticing  # type: ignore[method-assign] # noqa: SLF001
