"""What each page shows. These functions block while they ask the tiering server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from fastapi import Response

from airflow_provider_fluss.lineage import lake_names
from airflow_provider_fluss.plugins.page import known
from airflow_provider_fluss.plugins.page.access import form_token, may_edit
from airflow_provider_fluss.plugins.page.chart import HEIGHT, WIDTH, charts, folded, took
from airflow_provider_fluss.plugins.page.html import page, read_note
from airflow_provider_fluss.plugins.page.known import ask, fluss_connections
from airflow_provider_fluss.plugins.page.selection import ALWAYS_SHOWN, FILTERS, Selection, select
from fluss_tiering.model.error_text import mask_secrets, masked_options
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo, TablePath
from fluss_tiering.model.tiering import KvSnapshotLease, TieringStatus

if TYPE_CHECKING:
    from fluss_tiering.client import TieringClient

MAX_LEASES: Final = 500
"""A page shows this many leases, those that expire first."""


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """A lease as the page shows it.

    Attributes:
        lease: The lease.
        tables: The names of its tables in their order; the id stands for a table that the server does not tier.
        left: The part of the time since the lease was acquired or renewed that is left, from 0 to 100.
    """

    lease: KvSnapshotLease
    tables: tuple[str, ...]
    left: int


def lease_rows(leases: Iterable[KvSnapshotLease], statuses: Iterable[TieringStatus], now: int) -> list[LeaseRow]:
    """Return the rows of these leases. `now` is in ms since the epoch."""
    names = {each.table_id: str(each.path) for each in statuses}
    return [
        LeaseRow(
            lease,
            tuple(sorted({names.get(each.table_id, f"table {each.table_id}") for each in lease.snapshots})),
            _part_left(lease, now),
        )
        for lease in leases
    ]


def _part_left(lease: KvSnapshotLease, now: int) -> int:
    whole = lease.expiration_time - lease.acquired_time
    return min(100, max(0, 100 * (lease.expiration_time - now) // whole)) if whole > 0 else 0


_ASKED_ROUNDS: Final = 200
_SHOWN_ROUNDS: Final = 50
"""Rounds without rows that follow each other count as one."""
_HTTP_STATUSES: Final[Mapping[ErrorCode, HTTPStatus]] = {
    ErrorCode.TABLE_NOT_EXIST: HTTPStatus.NOT_FOUND,
    ErrorCode.INVALID_TABLE: HTTPStatus.NOT_FOUND,
    ErrorCode.INVALID_TIERING_STATE: HTTPStatus.CONFLICT,
    ErrorCode.INVALID_REQUEST: HTTPStatus.BAD_REQUEST,
    ErrorCode.UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: HTTPStatus.SERVICE_UNAVAILABLE,
}


@dataclass(frozen=True, slots=True)
class Visit:
    """Who looks at a page, and at which server.

    Attributes:
        user: The user.
        conn: The id of the connection; empty for the first one.
        note: What an action told, as `write_note` wrote it; empty if there was none.
    """

    user: BaseUser
    conn: str
    note: str


def tables(visit: Visit, selection: Selection) -> Response:
    """Return the page with the tables of a server."""

    def content(conn: str, now: int) -> Mapping[str, Any]:
        return {
            "selected": select(known.statuses(conn), replace(selection, conn=conn)),
            "filters": FILTERS,
            "always_shown": ALWAYS_SHOWN,
        }

    return _show("tables.html", "tables", visit, content)


def table(visit: Visit, name: str) -> Response:
    """Return the page of one table, with the history of its rounds."""

    def content(conn: str, now: int) -> Mapping[str, Any]:
        path = TablePath.parse(name)
        (each,), rounds, info = ask(
            conn,
            lambda client: (
                client.list_tiering_statuses(path),
                client.list_tiering_rounds(path, limit=_ASKED_ROUNDS),
                _table_info(client, path),
            ),
        )
        parts = folded(rounds)[:_SHOWN_ROUNDS]
        return {
            "each": each,
            "newest": next(iter(rounds), None),
            "parts": parts,
            "charts": charts([each for part in parts for each in part], now),
            "lake": {} if info is None else _lake(info),
            "options": {} if info is None else masked_options(info.descriptor.properties),
            "chart_width": WIDTH,
            "chart_height": HEIGHT,
            "took": took,
        }

    return _show("table.html", "table", visit, content)


def _table_info(client: TieringClient, path: TablePath) -> TableInfo | None:
    """Return the table; None if the server tells its status, but does not know the table at present."""
    try:
        (info,) = client.get_tables([path])
    except FlussTieringError:
        return None
    return info


def _lake(info: TableInfo) -> dict[str, str]:
    """Return where the lake table is, without secrets: facts by their names."""
    catalog = info.lake_catalog_properties
    namespace, name, _ = lake_names(catalog, str(info.lake_path))
    facts = {
        "Lake table": str(info.lake_path),
        "Catalog": " at ".join(filter(None, (catalog.get("type") or catalog.get("catalog-impl"), catalog.get("uri")))),
    }
    if name == str(info.lake_path):
        facts["Warehouse"] = catalog.get("warehouse", "")
    else:
        facts["Location"] = name if namespace == "file" else f"{namespace.rstrip('/')}/{name.lstrip('/')}"
    return {fact: mask_secrets(value) for fact, value in facts.items() if value}


def leases(visit: Visit) -> Response:
    """Return the page with the leases of a server."""

    def content(conn: str, now: int) -> Mapping[str, Any]:
        found = known.leases(conn)
        return {
            "leases": lease_rows(found[:MAX_LEASES], known.statuses(conn), now),
            "number": len(found),
        }

    return _show("leases.html", "leases", visit, content)


def _show(template: str, section: str, visit: Visit, content: Callable[[str, int], Mapping[str, Any]]) -> Response:
    """Return the page with what `content` returns for the connection and the present time, or with its error."""
    connections = fluss_connections(visit.user)
    now = int(time.time() * 1000)
    conn = visit.conn or next(iter(connections), "")
    common: dict[str, Any] = {
        "section": section,
        "conn": conn,
        "connections": connections,
        "now": now,
        "query": urlencode({"conn": conn}),
        "note": read_note(visit.note),
        "token": form_token(visit.user) if may_edit(visit.user, conn) else None,
    }
    if not connections:
        return page("problem.html", title="No connection", reason=_NO_CONNECTION, **common)
    if conn not in connections:
        reason = f"There is no connection {conn} of type fluss. Choose one of the connections above."
        return page("problem.html", HTTPStatus.NOT_FOUND, title="No such connection", reason=reason, **common)
    try:
        values = content(conn, now)
    except FlussTieringError as error:
        status = _HTTP_STATUSES.get(error.code, HTTPStatus.BAD_GATEWAY)
        title = _TITLES.get(status, "The tiering server answered with an error")
        away = status is HTTPStatus.SERVICE_UNAVAILABLE
        return page("problem.html", status, title=title, reason=error.message, away=away, **common)
    return page(template, **common, **values)


_NO_CONNECTION: Final = (
    "Airflow has no connection of type fluss. Create one with the id fluss_default, with the host and the port of the "
    "tiering server, under Admin, Connections."
)
_TITLES: Final[Mapping[HTTPStatus, str]] = {
    HTTPStatus.NOT_FOUND: "No such table",
    HTTPStatus.CONFLICT: "The table is not tiered",
    HTTPStatus.SERVICE_UNAVAILABLE: "The tiering server does not answer",
    HTTPStatus.BAD_REQUEST: "The connection cannot be used",
}
