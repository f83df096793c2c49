"""The installed version of Airflow, and names that have moved and that only tests need, from where it has them."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, Final

from airflow import __version__

# D71: `make airflow-versions` runs the tests of the provider on each minor version, and some names have moved.
try:
    from airflow.dag_processing.dagbag import DagBag
except ModuleNotFoundError:  # Airflow 3.1
    from airflow.models.dagbag import DagBag  # type: ignore[no-redef]
try:
    from airflow.serialization.serialized_objects import DagSerialization
except ImportError:  # Airflow 3.1
    from airflow.serialization.serialized_objects import (  # type: ignore[attr-defined, no-redef]
        SerializedDAG as DagSerialization,
    )
try:
    from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime
except ModuleNotFoundError:  # Airflow 3.1
    from airflow.providers_manager import (  # type: ignore[no-redef]
        ProvidersManager as ProvidersManagerTaskRuntime,
    )


AIRFLOW: Final = tuple(int(part) for part in __version__.split(".")[:2])
"""The major and the minor version, to compare: what an older version lacks is on the page airflow-versions.md."""


def dag_bag(path: Path) -> DagBag:
    """Return the DAGs of a file or a folder."""
    # Without the latter, Airflow 3.1 adds its own examples.
    wished: dict[str, Any] = {"bundle_name": "dags", "include_examples": False}
    known = {name: value for name, value in wished.items() if name in inspect.signature(DagBag).parameters}
    return DagBag(dag_folder=str(path), collect_dags=True, **known)


__all__ = ["AIRFLOW", "DagBag", "DagSerialization", "ProvidersManagerTaskRuntime", "dag_bag"]
