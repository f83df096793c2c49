"""Names of Airflow that have moved and that only tests need, from where the installed version has them."""

from __future__ import annotations

import inspect
from pathlib import Path

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


def dag_bag(path: Path) -> DagBag:
    """Return the DAGs of a file or a folder."""
    named = {"bundle_name": "dags"} if "bundle_name" in inspect.signature(DagBag).parameters else {}
    return DagBag(dag_folder=str(path), collect_dags=True, **named)


__all__ = ["DagBag", "DagSerialization", "ProvidersManagerTaskRuntime", "dag_bag"]
