"""DAG files are parsed again and again: neither they nor the provider load what only a task needs."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys

import pytest

import airflow_provider_fluss
from examples.flights.example_dags import EXAMPLE_DAGS

HEAVY = ("grpc", "google.protobuf", "pyspark", "pyarrow", "numpy", "fluss_tiering.client", "fluss_tiering.api")


def loaded_by(code: str) -> set[str]:
    script = f"{code}\nimport sys, json; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.system
def test_provider_modules_are_light():
    names = [each.name for each in pkgutil.walk_packages(airflow_provider_fluss.__path__, "airflow_provider_fluss.")]
    assert len(names) > 10
    assert not loaded_by(f"import {', '.join(names)}") & set(HEAVY)


@pytest.mark.sampled(1)
@pytest.mark.system
@pytest.mark.parametrize("path", sorted(EXAMPLE_DAGS.glob("example_*.py")), ids=lambda path: path.name)
def test_dag_files_are_light_and_touch_nothing_when_parsed(path):
    # Any connection or socket that a parse opens ends it.
    parse = f"""
import socket, runpy
import airflow.sdk, airflow.providers.apache.spark.operators.spark_submit, airflow.triggers.base
def refused(*args, **kwargs):
    raise AssertionError("a DAG file opened a connection while it was parsed")
socket.socket.connect = refused
from airflow.sdk import BaseHook
BaseHook.get_connection = refused
runpy.run_path({str(path)!r})
"""
    assert not loaded_by(parse) & set(HEAVY)
