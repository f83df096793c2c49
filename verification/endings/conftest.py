"""Airflow on SQLite and on PostgreSQL, each with a tiering server, and runs of DAGs that end in some way."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from airflow_stack import AirflowStack
from ending import Ending
from way_run import Way

from engine_fixtures import postgres  # noqa: F401
from needs import needs
from postgres_support import Postgres

MAIN_DAG = "fluss_tiering"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder: a run takes a minute, and an outage longer."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.long)
            item.add_marker(pytest.mark.timeout(1800))


@pytest.fixture(scope="session", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
@needs("airflow", "spark", "system")
def stack(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, spark_jars: str
) -> Iterator[AirflowStack]:
    """The programs, with this kind of database for Airflow."""
    database: str = request.param
    url = None if database == "sqlite" else _new_database(request.getfixturevalue("postgres"))
    with AirflowStack(tmp_path_factory.mktemp(f"endings-{database}"), database, url) as running:
        yield running


def _new_database(server: Postgres) -> str:
    """Create a database that ends the transaction of a scheduler which was killed.

    The workers of a LocalExecutor are forked from the scheduler. They keep its connection open when it is killed, and
    with it the locks of its transaction: the next scheduler would pass over the runs whose rows are locked.
    """
    url = server.new_database()
    name = sa.make_url(url).database
    server.execute(f"ALTER DATABASE {name} SET idle_in_transaction_session_timeout = '30s'")
    return url


@pytest.fixture
def begin(stack: AirflowStack, request: pytest.FixtureRequest) -> Iterator[Callable[..., Way]]:
    """Starts the run of a test. What was seen is written when the test ends, whether it passes or not."""
    ways: list[Way] = []

    def start(
        way: str,
        dag_id: str = "way",
        *,
        by_hand: bool = False,
        interruption: bool = True,
        ends: str | None = "success",
        held: bool = True,
        taken: bool = False,
        freshness: str = "1h",
        **conf: object,
    ) -> Way:
        run = Way(
            stack,
            Ending(
                request.path.stem,
                request.function.__code__.co_firstlineno,
                way,
                stack.database,
                by_hand,
                interruption,
                ends,
            ),
            dag_id,
        )
        ways.append(run)
        tables = [run.new_table(primary_key=each, freshness=freshness) for each in (True, False)]
        if taken:
            run.take_lake_table(tables[0])
        elif held:
            run.proxy.hold()
        if dag_id == MAIN_DAG:
            run.wait_until_pending()
        run.start(**({} if dag_id == MAIN_DAG else {"tables": tables}), **conf)
        return run

    yield start
    for run in ways:
        if not run.ending.lake:
            run.ending.broken.append("the test was broken off")
        # The id ends with the parameters: with the database alone, or with the database and those of the way.
        name = re.sub(r"[^a-z0-9]+", "_", request.node.name.removeprefix("test_").replace(stack.database, ""))
        run.ending.save(name.strip("_"))
        run.close()
