"""Two hundred pending tables in one run of the main DAG, and how many Spark applications it takes."""

from __future__ import annotations

import time

import psutil
import pytest

from fluss_tiering.model.tiering import TieringState
from waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

TABLES = 200
BATCH = 20
APPLICATIONS = 4


def applications(server: str) -> int:
    """Return how many JVMs run an application for a server.

    The launcher before each JVM is not counted, nor is a child of a JVM that has not yet become another program.
    """
    jvms = {}
    for process in psutil.process_iter(["cmdline", "ppid"]):
        line = process.info["cmdline"] or [""]
        launcher = "org.apache.spark.launcher.Main" in line
        if line[0].endswith("java") and "org.apache.spark.deploy.SparkSubmit" in line and server in line:
            jvms[process.pid] = None if launcher else process.info["ppid"]
    return sum(parent is not None and parent not in jvms for parent in jvms.values())


def test_at_most_four_applications_tier_two_hundred_tables(stack, new_table):
    tables = {new_table(primary_key=number % 2 == 0, freshness="1s") for number in range(TABLES)}

    def states() -> dict[str, TieringState]:
        return {str(each.path): each.state for each in stack.client.list_tiering_statuses()}

    wait_until(lambda: all(states()[table] is TieringState.PENDING for table in tables))
    run = stack.airflow.trigger("fluss_tiering", {"batch_size": BATCH})
    submitted, running = 0, 0
    while (state := stack.airflow.run_state("fluss_tiering", run)) not in ("success", "failed"):
        now = [each.state for each in stack.airflow.task_states("fluss_tiering", run) if each.task_id == "tier.submit"]
        submitted, running = max(submitted, now.count("running")), max(running, applications(stack.server))
        time.sleep(0.5)
    assert state == "success"
    assert 1 < submitted <= APPLICATIONS
    assert 1 < running <= APPLICATIONS
    rounds = [
        each
        for batch in range(TABLES // BATCH)
        for each in stack.airflow.xcom("fluss_tiering", run, "tier.wait", batch)
    ]
    assert {(each["table"], each["status"], each["rows"]) for each in rounds} == {
        (table, "Tiered", 1000) for table in tables
    }
    assert len(rounds) == TABLES
