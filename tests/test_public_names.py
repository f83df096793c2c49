"""What other programs may import: its names are pinned, explained, and loaded only when they are used."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "public-names.md"

CLIENT = [
    "AsyncTieringClient",
    "DEFAULT_PORT",
    "DEFAULT_TARGET",
    "TableScan",
    "TieringClient",
    "finish_unchanged_tables",
    "lease_latest_snapshots",
]
VALUES = [
    "AcquiredLease",
    "AddColumn",
    "BucketInfo",
    "Claim",
    "Column",
    "DataType",
    "DataTypeRoot",
    "DropColumn",
    "Field",
    "HeartbeatAnswer",
    "HeartbeatEntry",
    "KvSnapshot",
    "KvSnapshotLease",
    "LakeSnapshot",
    "LeaseDrop",
    "LeaseOutcome",
    "RenameColumn",
    "RoundOrigin",
    "StatusChanges",
    "StorageDescription",
    "TableBucket",
    "TableDescriptor",
    "TableInfo",
    "TablePath",
    "TableSchema",
    "TieringRound",
    "TieringState",
    "TieringStats",
    "TieringStatus",
    "WidenColumn",
    "WriteKind",
]
ERRORS = ["ErrorCode", "FlussTieringError"]
PUBLIC = {
    "fluss_tiering": sorted([*CLIENT, *VALUES, *ERRORS, "__version__"]),
    "fluss_tiering.client": CLIENT,
    "airflow_provider_fluss": [
        "FlussAcquireKvSnapshotLeaseOperator",
        "FlussCompactOperator",
        "FlussExpireSnapshotsOperator",
        "FlussHook",
        "FlussMaintainOperator",
        "FlussPublishOperator",
        "FlussReleaseKvSnapshotLeaseOperator",
        "FlussTableTieredTrigger",
        "FlussTieringNotifier",
        "FlussTieringOperator",
        "FlussTieringSparkOperator",
        "FlussTieringStatusSensor",
        "FlussTieringStatusTrigger",
        "FlussVerifyOperator",
        "Way",
        "__version__",
        "create_asset",
        "release_lease_on_failure",
    ],
}
NAMES = [
    pytest.param(package, name, marks=pytest.mark.airflow) if package == "airflow_provider_fluss" else (package, name)
    for package, names in PUBLIC.items()
    for name in names
]

WHAT_TO_DO = (
    "The public names of {package} have changed. If that is intended, change the list in this test too, describe the "
    "name in docs/reference/public-names.md, and say it in CHANGELOG.md. A name that was released stays for a time, as "
    "docs/reference/stability.md says."
)


@pytest.fixture(scope="module", autouse=True)
def airflow_home(tmp_path_factory: pytest.TempPathFactory) -> None:
    # Airflow reads its home when it is first imported.
    os.environ.setdefault("AIRFLOW_HOME", str(tmp_path_factory.mktemp("airflow")))


@pytest.mark.parametrize("package", PUBLIC)
def test_the_public_names_are_these(package: str) -> None:
    assert sorted(importlib.import_module(package).__all__) == PUBLIC[package], WHAT_TO_DO.format(package=package)


@pytest.mark.parametrize(("package", "name"), NAMES)
def test_each_public_name_can_be_imported(package: str, name: str) -> None:
    module = importlib.import_module(package)
    assert name in dir(module)
    assert getattr(module, name) is not None


@pytest.mark.parametrize(("package", "name"), NAMES)
def test_each_public_class_and_function_has_a_docstring_of_its_own(package: str, name: str) -> None:
    public = getattr(importlib.import_module(package), name)
    if not callable(public):
        return
    text = public.__doc__ or ""
    assert text
    assert not text.startswith(f"{name}("), "dataclasses make a docstring that only repeats the signature"


@pytest.mark.parametrize("name", sorted({name for names in PUBLIC.values() for name in names}))
def test_the_page_of_public_names_tells_of_each(name: str) -> None:
    assert re.search(rf"`{name}\b", PAGE.read_text()), f"{name} is not in {PAGE.name}"


@pytest.mark.parametrize("package", PUBLIC)
def test_other_names_are_refused(package: str) -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        importlib.import_module(package).no_such_name  # noqa: B018


def loaded_by(package: str) -> set[str]:
    script = f"import {package}, json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    return {name.partition(".")[0] for name in json.loads(done.stdout)}


@pytest.mark.system
def test_the_values_are_loaded_without_the_client_and_its_libraries() -> None:
    assert not loaded_by("fluss_tiering") & {"google", "grpc", "numba", "numpy", "pyarrow", "pyspark"}


@pytest.mark.system
def test_the_client_is_loaded_without_what_the_base_install_lacks() -> None:
    lacking = {"airflow", "numba", "numpy", "pyarrow", "pydantic", "pyspark", "sqlalchemy"}
    assert not loaded_by("fluss_tiering.client") & lacking


@pytest.mark.system
def test_the_provider_is_loaded_without_airflow_and_the_engine() -> None:
    assert not loaded_by("airflow_provider_fluss") & {"airflow", "fluss_tiering", "grpc", "pyspark"}
