"""The routes of the page. All of them ask for Airflow's login, and all addresses in the HTML are relative.

The routes stand beside each other, one level below the page. Relative addresses are therefore right wherever Airflow is
mounted: `[api] base_url` may have a path, and a proxy may cut it off or not.
"""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urljoin

from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response, status
from fastapi.exception_handlers import http_exception_handler, request_validation_exception_handler
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException as AnyHttpException

from airflow_provider_fluss.plugins.page import actions, views
from airflow_provider_fluss.plugins.page.access import Attempt, Editor, Field, Number, Reader, Text, reader
from airflow_provider_fluss.plugins.page.html import refusal, static_file
from airflow_provider_fluss.plugins.page.known import in_thread
from airflow_provider_fluss.plugins.page.selection import Selection


def make_app() -> FastAPI:
    """Return the application. It has no page of its own about its API, since it has no API."""
    app = FastAPI(title="Lake tiering", dependencies=[Depends(reader)], docs_url=None, redoc_url=None, openapi_url=None)
    app.add_exception_handler(AnyHttpException, _refuse)
    app.add_exception_handler(RequestValidationError, _refuse_input)
    app.add_api_route("/", _tables, methods=["GET"])
    app.add_api_route("/table", _table, methods=["GET"])
    app.add_api_route("/leases", _leases, methods=["GET"])
    app.add_api_route("/static/{name}", _static, methods=["GET"])
    app.add_api_route("/resume", _resume, methods=["POST"])
    app.add_api_route("/tier-now", _tier_now, methods=["POST"])
    app.add_api_route("/release", _release, methods=["POST"])
    return app


async def _tables(
    user: Reader,
    *,
    conn: Text = "",
    q: Text = "",
    status: Text = "",
    tables: Annotated[list[Text] | None, Query()] = None,
    order: Text = "",
    descending: bool = False,
    page: Number = 1,
    note: Text = "",
) -> Response:
    """Show the tables of a server."""
    selection = Selection(
        conn=conn, search=q, status=status, tables=tuple(tables or ()), order=order, descending=descending, page=page
    )
    return await in_thread(conn, lambda: views.tables(views.Visit(user, conn, note), selection))


async def _table(user: Reader, table: Text, conn: Text = "", note: Text = "") -> Response:
    """Show one table with the history of its rounds."""
    return await in_thread(conn, lambda: views.table(views.Visit(user, conn, note), table))


async def _leases(user: Reader, conn: Text = "", note: Text = "") -> Response:
    """Show the leases of a server."""
    return await in_thread(conn, lambda: views.leases(views.Visit(user, conn, note)))


async def _static(name: str) -> Response:
    """Return a style sheet, a script or an icon."""
    response = static_file(name)
    if response is None:
        raise HTTPException(status.HTTP_404_NOT_FOUND, f"There is no file {name}.")
    return response


async def _resume(user: Editor, conn: Field, table: Field) -> Response:
    """Resume a failed table."""
    return await in_thread(conn, lambda: actions.resume(user, conn, table))


async def _tier_now(user: Editor, conn: Field, table: Field) -> Response:
    """Make a scheduled table due now."""
    return await in_thread(conn, lambda: actions.tier_now(user, conn, table))


async def _release(user: Editor, conn: Field, lease: Field, attempt: Attempt) -> Response:
    """Release a lease."""
    return await in_thread(conn, lambda: actions.release(user, conn, lease, attempt))


async def _refuse(request: Request, error: Exception) -> Response:
    """Answer with a page that says why; with JSON to a program."""
    assert isinstance(error, AnyHttpException)  # noqa: S101 - the handler is registered for it alone
    if "text/html" in request.headers.get("accept", ""):
        return refusal(error.status_code, str(error.detail), _after_login(request))
    return await http_exception_handler(request, error)


async def _refuse_input(request: Request, error: Exception) -> Response:
    """Answer with a page that names what cannot be read; with JSON to a program."""
    assert isinstance(error, RequestValidationError)  # noqa: S101 - the handler is registered for it alone
    if "text/html" in request.headers.get("accept", ""):
        wrong = "; ".join(f"{each['loc'][-1]}: {each['msg']}" for each in error.errors())
        return refusal(status.HTTP_422_UNPROCESSABLE_ENTITY, f"This cannot be read. {wrong}", _after_login(request))
    return await request_validation_exception_handler(request, error)


def _after_login(request: Request) -> str:
    """Return where the login leads: back to a page, or to the list of tables, since it cannot send a form again."""
    asked = str(request.url)
    return asked if request.method == "GET" else urljoin(asked, "./")
