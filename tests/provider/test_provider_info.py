"""What Airflow learns of the provider, and what it does not load to parse DAG files."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import airflow
import pytest
from airflow.providers_manager import ProvidersManager
from airflow.sdk import BaseHook, BaseOperator, BaseOperatorLink
from airflow.triggers.base import BaseTrigger
from airflow_names import AIRFLOW

import airflow_provider_fluss
from airflow_provider_fluss.get_provider_info import get_provider_info
from examples.flights.example_dags import EXAMPLE_DAGS

NAME = "airflow-provider-fluss"


def test_info_fits_airflows_schema():
    import jsonschema  # noqa: PLC0415 - it takes a second, which every process would wait for

    schema = json.loads((Path(airflow.__file__).parent / "provider_info.schema.json").read_text())
    jsonschema.validate(get_provider_info(), schema)


def test_every_module_that_is_named_holds_what_it_is_named_for():
    info = get_provider_info()
    for section, base in (
        ("hooks", BaseHook),
        ("operators", BaseOperator),
        ("sensors", BaseOperator),
        ("triggers", BaseTrigger),
    ):
        for name in (name for integration in info[section] for name in integration["python-modules"]):
            module = importlib.import_module(name)
            assert [
                each
                for each in vars(module).values()
                if inspect.isclass(each) and issubclass(each, base) and each.__module__ == name
            ], f"{name} holds no {base.__name__}"


def test_the_links_of_tasks_exist():
    for name in get_provider_info()["extra-links"]:
        module, _, link = name.rpartition(".")
        assert issubclass(getattr(importlib.import_module(module), link), BaseOperatorLink)


def test_every_object_that_is_named_exists():
    info = get_provider_info()
    names = [*info["notifications"], *(each["hook-class-name"] for each in info["connection-types"])]
    names += [each[key] for each in info["asset-uris"] for key in ("handler", "factory", "to_openlineage_converter")]
    for name in names:
        module, _, attribute = name.rpartition(".")
        assert callable(getattr(importlib.import_module(module), attribute)), name


@pytest.mark.system
def test_airflows_command_tells_the_whole_provider():
    airflow_command = Path(sys.executable).with_name("airflow")
    told = subprocess.run(
        [airflow_command, "providers", "get", NAME, "--full", "--output", "json"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    (provider,) = json.loads(told.stdout.splitlines()[-1])
    for section, value in get_provider_info().items():
        # The command strips markup from the description, and makes texts of some numbers.
        if section not in {"description", "connection-types"}:
            assert provider[section] == value, section
    assert [each["connection-type"] for each in provider["connection-types"]] == ["fluss"]


@pytest.mark.skipif(AIRFLOW < (3, 2), reason="this Airflow reads no forms in the metadata of providers")
def test_connection_type_has_its_form():
    manager = ProvidersManager()
    for name in ("timeout", "token_file", "tls", "tls_ca", "tls_cert", "tls_key", "allow_insecure"):
        assert f"extra__fluss__{name}" in manager.connection_form_widgets
    behaviour = manager.field_behaviours["fluss"]
    assert behaviour["relabeling"] == {"host": "Tiering server", "password": "Token"}
    assert "password" not in behaviour["hidden_fields"]


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
