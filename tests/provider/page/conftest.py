"""A real API server of Airflow with the page, below a path, with a login; and a real browser."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from page_support import USERS, AirflowPage
from page_tables import Tables

from chromium import WHY_MISSING, Chromium
from engine_support import ServerProcess
from examples.flights.airflow_processes import AirflowProcesses
from examples.flights.processes import Processes
from examples.ports import free_ports
from fluss_tiering.client import TieringClient
from needs import needs

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
@needs("airflow")
def airflow(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowPage]:
    """The API server alone. Its base URL has a path, which is the harder case for the addresses on the page."""
    folder = tmp_path_factory.mktemp("page-airflow")
    passwords = folder / "passwords.json"
    passwords.write_text(json.dumps({name: name for name in USERS}))
    processes = Processes(folder)
    (closed_port, port) = free_ports(2)
    path = "/deep/airflow"
    started = AirflowProcesses(
        processes,
        folder / "airflow",
        dag_folders={},
        connections={
            "fluss_default": {"conn_type": "fluss", "host": "127.0.0.1", "port": server.port},
            "fluss_away": {"conn_type": "fluss", "host": "127.0.0.1", "port": closed_port},
            "not_fluss": {"conn_type": "http", "host": "127.0.0.1", "port": server.port},
        },
        port=port,
        settings={
            "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{port}{path}",
            "AIRFLOW__CORE__AUTH_MANAGER": "page_auth_manager.AuthManagerWithOutsider",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "False",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{name}:{role}" for name, role in USERS.items()),
            "PYTHONPATH": str(Path(__file__).parent),
        },
    )
    try:
        started.start(components=())
        page = AirflowPage(f"http://127.0.0.1:{port}", path)
        for conn_id, conn_type in (("fluss_other", "fluss"), ("http_other", "http")):
            in_database = {"connection_id": conn_id, "conn_type": conn_type, "host": "127.0.0.1", "port": server.port}
            page.api("olga").post("/api/v2/connections", json=in_database).raise_for_status()
        yield page
    finally:
        processes.stop()


@pytest.fixture
def reader(airflow: AirflowPage) -> Iterator[httpx.Client]:
    """A browser's requests of somebody who may read the page."""
    with airflow.session("vera") as session:
        yield session


@pytest.fixture
def tables(client: TieringClient) -> Tables:
    return Tables(client)


@pytest.fixture
def name() -> Callable[[str], str]:
    """Makes names of tables that no other test has."""
    number = next(_NUMBERS)
    return lambda suffix="table": f"page.t{number}_{suffix}"


@pytest.fixture(scope="session")
@needs("system")
def any_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    if WHY_MISSING:
        pytest.skip(WHY_MISSING)
    with Chromium(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.fixture
def browser(any_browser: Chromium, airflow: AirflowPage) -> Iterator[Chromium]:
    """A browser in which somebody who may act is logged in. A test fails if the browser logged an error."""
    any_browser.log_in(airflow.origin, airflow.token("olga"), f"{airflow.path}/")
    any_browser.prefer("light")
    any_browser.resize(1280, 800)
    any_browser.problems.clear()
    yield any_browser
    assert not any_browser.problems
