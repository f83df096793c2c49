"""Airflow provider that tiers Apache Fluss tables into Apache Iceberg with Spark.

The names in `__all__` are public, here and in the modules that define them. Each is loaded when it is first used, so
that Airflow can read the version and the provider's metadata without loading an operator.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_provider_fluss.assets.table import create_asset
    from airflow_provider_fluss.callbacks import release_lease_on_failure
    from airflow_provider_fluss.hooks.fluss import FlussHook
    from airflow_provider_fluss.notifications.tiering import FlussTieringNotifier
    from airflow_provider_fluss.operators.lease import (
        FlussAcquireKvSnapshotLeaseOperator,
        FlussReleaseKvSnapshotLeaseOperator,
    )
    from airflow_provider_fluss.operators.maintenance import (
        FlussCompactOperator,
        FlussExpireSnapshotsOperator,
        FlussMaintainOperator,
        FlussPublishOperator,
        FlussVerifyOperator,
    )
    from airflow_provider_fluss.operators.round import FlussTieringOperator
    from airflow_provider_fluss.operators.tiering import FlussTieringSparkOperator
    from airflow_provider_fluss.sensors.status import FlussTieringStatusSensor
    from airflow_provider_fluss.triggers.status import FlussTieringStatusTrigger
    from airflow_provider_fluss.triggers.tiered import FlussTableTieredTrigger
    from airflow_provider_fluss.ways import Way

__version__ = "0.1.0"

__all__ = [
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
]

# Type checkers see the imports above. They would take any name for a name of the package if they saw this function.
if not TYPE_CHECKING:
    _MODULES = {
        "FlussAcquireKvSnapshotLeaseOperator": "operators.lease",
        "FlussCompactOperator": "operators.maintenance",
        "FlussExpireSnapshotsOperator": "operators.maintenance",
        "FlussMaintainOperator": "operators.maintenance",
        "FlussPublishOperator": "operators.maintenance",
        "FlussHook": "hooks.fluss",
        "FlussReleaseKvSnapshotLeaseOperator": "operators.lease",
        "FlussTableTieredTrigger": "triggers.tiered",
        "FlussTieringNotifier": "notifications.tiering",
        "FlussTieringOperator": "operators.round",
        "FlussTieringSparkOperator": "operators.tiering",
        "FlussTieringStatusSensor": "sensors.status",
        "FlussTieringStatusTrigger": "triggers.status",
        "FlussVerifyOperator": "operators.maintenance",
        "Way": "ways",
        "create_asset": "assets.table",
        "release_lease_on_failure": "callbacks",
    }

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
