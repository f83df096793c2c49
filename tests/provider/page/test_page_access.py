"""Who may reach the page: each route asks for Airflow's login and for a permission."""

from __future__ import annotations

import re
from types import SimpleNamespace
from urllib.parse import unquote

import pytest
from airflow.api_fastapi.auth.managers.models.resource_details import ConnectionDetails
from airflow.models.connection import Connection
from airflow_names import AIRFLOW
from fastapi.routing import APIRoute
from page_auth_manager import OUTSIDER

from airflow_provider_fluss.plugins.page import access
from airflow_provider_fluss.plugins.page.app import make_app

ROUTES = [
    pytest.param(method, route.path.replace("{name}", "page.css").lstrip("/") or "./", id=f"{method} {route.path}")
    for route in make_app().routes
    if isinstance(route, APIRoute)
    for method in sorted(route.methods)
]
ACTIONS = [each.values[1] for each in ROUTES if each.values[0] == "POST"]


def test_the_app_has_nothing_but_routes_that_the_tests_below_know():
    assert all(isinstance(route, APIRoute) for route in make_app().routes)
    assert set(ACTIONS) == {"resume", "tier-now", "release"}
    assert {"GET ./", "GET table", "GET leases", "GET static/page.css"} <= {" ".join(each.values) for each in ROUTES}


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_nobody_is_let_in_without_a_login(airflow, method, path):
    with airflow.session(None) as session:
        assert session.request(method, path).status_code == 401
        session.cookies["_token"] = "made.up.token"
        assert session.request(method, path).status_code in {401, 403}


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_a_user_without_the_permission_is_refused(airflow, method, path):
    with airflow.session(OUTSIDER) as session:
        answer = session.request(method, path)
    assert answer.status_code == 403
    assert "permission to see Airflow&#39;s plugins" in answer.text


def test_who_is_not_logged_in_is_shown_the_way_to_the_login(airflow):
    with airflow.session(None) as session:
        answer = session.get("table?table=db.t")
        if AIRFLOW >= (3, 3):
            assert f"{airflow.path}/auth/login?next=" in answer.text
            assert "lake-tiering%2Ftable%3Ftable%3Ddb.t" in answer.text
        else:  # An older login does not lead back.
            assert f'"{airflow.path}/auth/login"' in answer.text
        program = session.get("./", headers={"Accept": "application/json"})
    assert (program.status_code, program.json()) == (401, {"detail": "Not authenticated"})


@pytest.mark.skipif(AIRFLOW < (3, 3), reason="an older login does not lead back")
@pytest.mark.parametrize("action", ACTIONS)
def test_the_login_after_an_action_leads_to_the_page(airflow, action):
    with airflow.session(None) as session:
        answer = session.post(f"{action}?conn=fluss", data={"table": "db.t"})
    assert answer.status_code == 401
    (where,) = re.findall(r'/auth/login\?next=([^"]*)"', answer.text)
    assert unquote(where).endswith(f"{airflow.path}/lake-tiering/")


def test_a_browser_may_do_nothing_that_the_page_does_not_need(reader):
    for path in ("./", "leases", "table?table=no.table"):
        headers = reader.get(path).headers
        policy = dict(each.strip().split(" ", 1) for each in headers["content-security-policy"].split(";"))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["form-action"] == policy["frame-ancestors"] == "'self'"
        assert (headers["cache-control"], headers["x-content-type-options"]) == ("no-store", "nosniff")


@pytest.mark.skipif(AIRFLOW < (3, 2), reason="connections have had teams since Airflow 3.2")
@pytest.mark.parametrize("team", [None, "blue"])
def test_the_right_to_act_is_that_for_the_team_of_the_connection(monkeypatch, team):
    asked = []

    def is_authorized_connection(**question: object) -> bool:
        asked.append(question)
        return True

    manager = SimpleNamespace(is_authorized_connection=is_authorized_connection)
    monkeypatch.setattr(access, "get_auth_manager", lambda: manager)
    monkeypatch.setattr(Connection, "get_team_name", lambda conn_id: {"fluss_blue": team}[conn_id])
    user = SimpleNamespace()
    assert access.may_edit(user, "fluss_blue")
    details = ConnectionDetails(conn_id="fluss_blue", team_name=team)
    assert asked == [{"method": "PUT", "details": details, "user": user}]
