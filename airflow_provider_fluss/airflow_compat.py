"""Names that Airflow moved: here they are imported from where the installed version has them."""

from __future__ import annotations

try:
    from airflow.sdk.configuration import conf
    from airflow.sdk.exceptions import (
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowSensorTimeout,
        AirflowSkipException,
    )
except ModuleNotFoundError:  # Airflow 3.1
    from airflow.configuration import conf
    from airflow.exceptions import (  # type: ignore[attr-defined, no-redef]
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowSensorTimeout,
        AirflowSkipException,
    )

__all__ = [
    "AirflowException",
    "AirflowFailException",
    "AirflowNotFoundException",
    "AirflowSensorTimeout",
    "AirflowSkipException",
    "conf",
]
