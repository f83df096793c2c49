"""The example DAGs as Airflow finds and reads them."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import packages_distributions
from inspect import isfunction
from pathlib import Path

import pytest
from airflow.dag_processing.bundles import manager
from airflow.sdk import TriggerRule
from airflow_names import DagBag, DagSerialization, dag_bag

import airflow_provider_fluss
from airflow_provider_fluss import ways
from airflow_provider_fluss.callbacks import release_lease_on_failure
from examples.flights.example_dags import EXAMPLE_DAGS, copy_without_schedules

WAYS = [name for name, found in vars(ways).items() if isfunction(found) and found.__module__ == ways.__name__]
FILES = sorted(EXAMPLE_DAGS.glob("example_*.py"))


@pytest.fixture(scope="module")
def bag() -> DagBag:
    return dag_bag(EXAMPLE_DAGS)


def test_dags_import_and_serialize(bag):
    assert not bag.import_errors
    of_ways = {f"fluss_submit_{name}" for name in WAYS if not name.startswith("_")}
    assert set(bag.dags) == {"fluss_lake_maintenance", "fluss_tiering", "fluss_tiering_table", "fluss_watch", *of_ways}
    for dag in bag.dags.values():
        DagSerialization.to_dict(dag)
        assert dag.doc_md
        assert dag.timetable.can_be_scheduled
        assert "example" in dag.tags


def test_each_example_is_a_file_that_airflow_finds():
    assert {path.name for path in EXAMPLE_DAGS.glob("*.py")} == {path.name for path in FILES}
    assert {path.stem.removeprefix("example_") for path in FILES} == {
        "fluss_lake_maintenance",
        "fluss_submit",
        "fluss_tiering",
        "fluss_tiering_table",
        "fluss_watch",
    }


@pytest.mark.skipif(
    not hasattr(manager, "_add_provider_example_dags_to_bundle"), reason="this Airflow shows its own examples alone"
)
def test_airflow_shows_the_examples_if_it_is_to_load_examples(monkeypatch, tmp_path):
    # The wheel has the folder `dags` here; see tests/packaging/test_packages.py.
    (tmp_path / "example_dags").symlink_to(EXAMPLE_DAGS)
    monkeypatch.setattr(airflow_provider_fluss, "__path__", [str(tmp_path)])
    monkeypatch.setenv("AIRFLOW__CORE__LOAD_EXAMPLES", "True")
    (bundle,) = [each for each in manager.DagBundlesManager().get_all_dag_bundles() if "fluss" in each.name]
    assert Path(bundle.path).resolve() == EXAMPLE_DAGS


def test_copies_without_schedules_are_the_same_but_for_them(bag, tmp_path):
    copies = dag_bag(copy_without_schedules(tmp_path))
    assert not copies.import_errors
    assert copies.dags.keys() == bag.dags.keys()
    assert not any(dag.timetable.can_be_scheduled for dag in copies.dags.values())
    for path in FILES:
        before, after = (each.read_text().splitlines() for each in (path, tmp_path / path.name))
        assert len([1 for old, new in zip(before, after, strict=True) if old != new]) == 1


def test_no_dag_file_has_the_name_of_a_package():  # D28
    names = {path.stem for path in FILES}
    assert not names & {"fluss_tiering", "airflow_provider_fluss", *packages_distributions(), *sys.stdlib_module_names}


@pytest.mark.long
@pytest.mark.system
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_dag_file_can_be_run_by_python(path):  # D28
    subprocess.run([sys.executable, str(path)], check=True, timeout=120)


@pytest.mark.parametrize(("dag_id", "prefix"), [("fluss_tiering", "tier."), ("fluss_tiering_table", "")])
def test_a_batch_is_leased_submitted_beside_its_sensor_and_released(bag, dag_id, prefix):
    dag = bag.dags[dag_id]
    acquire, submit, wait, release = (
        dag.get_task(f"{prefix}{name}") for name in ("acquire", "submit", "wait", "release")
    )
    assert acquire.is_setup
    assert acquire.downstream_task_ids == {submit.task_id, wait.task_id, release.task_id}
    # A client-mode submit blocks: the sensor waits beside it, not behind it.
    assert wait.upstream_task_ids == {acquire.task_id}
    assert submit.upstream_task_ids >= {acquire.task_id}
    assert release.is_teardown
    assert release.on_failure_fail_dagrun, "its state is that of the run"
    assert release.trigger_rule == TriggerRule.ALL_DONE_SETUP_SUCCESS
    assert wait.deferrable
    assert wait.submit_task_id == submit.task_id


def test_the_number_of_applications_is_bounded_however_many_batches_there_are(bag):  # D69
    assert bag.dags["fluss_tiering"].get_task("tier.submit").max_active_tis_per_dagrun == 4


@pytest.mark.parametrize("dag_id", ["fluss_tiering", "fluss_tiering_table"])
def test_leases_are_released_on_failure_and_never_on_retry(bag, dag_id):
    dag = bag.dags[dag_id]
    assert dag.on_failure_callback == release_lease_on_failure
    for task in dag.tasks:
        assert task.on_failure_callback == [release_lease_on_failure]
        assert not task.on_retry_callback
