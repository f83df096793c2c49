"""Which tables the watch DAG names, and that its task fails with their names."""

from __future__ import annotations

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow_names import dag_bag

from airflow_provider_fluss.alerts import alerts
from examples.flights.example_dags import EXAMPLE_DAGS
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import HeartbeatEntry, TieringState, TieringStatus

NOW = 10_000_000
MINUTE = 60_000


def status(state: TieringState = TieringState.PENDING, **values) -> TieringStatus:
    return TieringStatus(1, TablePath("shop", "orders"), state, NOW - 1, 7, **{"freshness_ms": 3 * MINUTE, **values})


@pytest.mark.parametrize(
    ("waiting_since", "factor", "alerted"),
    [
        (NOW - 9 * MINUTE, 3.0, False),
        (NOW - 9 * MINUTE - 1, 3.0, True),
        (NOW - 9 * MINUTE - 1, 4.0, False),
        (NOW + MINUTE, 1.0, False),  # the server's clock is ahead
        (None, 1.0, False),
    ],
)
def test_a_lag_above_a_multiple_of_the_freshness_is_told(waiting_since, factor, alerted):
    found = alerts([status(waiting_since=waiting_since, records_waiting=5)], NOW, factor)
    assert bool(found) is alerted
    if alerted:
        (text,) = found
        assert text == (
            "shop.orders is Pending, and its oldest row that is not in the lake has waited for 0:09:00: "
            "its freshness is 0:03:00"
        )


def test_what_the_server_does_not_know_raises_no_alert():
    assert alerts([status(waiting_since=0, freshness_ms=None), status()], NOW) == []


def test_a_failed_table_that_is_tried_again_raises_no_alert_and_a_parked_one_does():
    failed = status(TieringState.FAILED, last_error="interrupted", next_retry_time=NOW + 1)
    parked = status(TieringState.FAILED, last_error="no space\nleft", consecutive_failures=10)
    assert alerts([failed, parked], NOW) == ["shop.orders is parked after 10 failures in a row: no space left"]


def test_the_dag_fails_with_the_tables_that_are_parked_and_not_with_interrupted_ones(
    client, new_table, acquire, driver
):
    path = EXAMPLE_DAGS / "example_fluss_watch.py"
    bag = dag_bag(path)
    look = bag.dags["fluss_watch"].get_task("look").python_callable
    parked, interrupted = new_table(), new_table()
    params = {"fluss_conn_id": "fluss_default", "lag_factor": 1e6}
    # The DAG looks at all tables of the server, and other tests leave parked ones behind.
    for each in client.list_tiering_statuses():
        if each.parked:
            client.drop_table(each.path, drop_untiered=True)
    lease = acquire(parked, interrupted)
    for _ in range(11):
        claim = driver.claim(lease, interrupted)
        entry = HeartbeatEntry(claim.table_id, claim.tiering_epoch, "the worker shut down", interrupted=True)
        client.heartbeat(failed=[entry])
    assert look(params) >= 2
    for _ in range(10):
        driver.fail_round(lease, parked, "no space left")
    try:
        with pytest.raises(AirflowFailException) as error:
            look(params)
        assert f"- {parked} is parked after 10 failures in a row: no space left" in str(error.value)
        assert interrupted not in str(error.value)
    finally:
        client.drop_table(TablePath.parse(parked), drop_untiered=True)
