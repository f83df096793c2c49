"""The links of the tasks of a real round, as Airflow's own API tells them."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest

from airflow_provider_fluss.plugins.route import ROUTE
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import TieringState
from waiting import wait_until


@pytest.mark.long
def test_tasks_lead_to_their_table_and_to_the_spark_that_tiered_it(stack, new_table):
    table = new_table(primary_key=False, freshness="1s")
    wait_until(lambda: stack.client.list_tiering_statuses(TablePath.parse(table))[0].state is TieringState.PENDING)
    stack.airflow.wait_for_dag("fluss_tiering")
    run = stack.airflow.trigger("fluss_tiering")
    assert stack.airflow.wait_for_run("fluss_tiering", run, 240) == "success"
    links = {
        task: stack.airflow.links("fluss_tiering", run, f"tier.{task}", 0) for task in ("acquire", "submit", "wait")
    }
    (address,) = {each["Lake tiering"] for each in links.values()}
    assert address == f"plugin/{ROUTE}/{ROUTE}/table?conn=fluss_default&table={table}"
    page = stack.airflow.page(address.removeprefix(f"plugin/{ROUTE}/"))
    assert f"<h2>{table}</h2>" in page.replace("<wbr>", "")
    # The round leads back to the task that submitted its application, and to Spark.  # E31
    log = f"../dags/fluss_tiering/runs/{quote(run, safe='')}/tasks/tier.submit/mapped/0?try_number=1"
    assert f'href="{log}"' in page
    assert re.search(r'href="http://[\w.-]+:\d+" title="Spark', page)
    assert re.search(r"Rows of each round: \d+ rounds?, 0 of them failed; the highest value is 1,000", page)
    # The application is over, and so is its user interface.
    assert not links["submit"]["Spark"]
    assert links["acquire"].keys() == links["wait"].keys() == {"Lake tiering"}
