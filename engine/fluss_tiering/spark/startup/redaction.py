"""Which settings Spark masks on its web page and in its event log.

The properties of the lake catalog are settings of the session while SQL runs, for example that of `verify`. Spark shows
with each query which settings it had. By default it masks only some of those that hold secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fluss_tiering.model.error_text import SECRET_NAMES

REDACTION: Final = "spark.redaction.regex"
"""Spark's setting: a value is masked if this is found in its name or in itself."""
SECRETS: Final = f"(?i){SECRET_NAMES}|://[^/@ ]*:[^/@ ]+@"
"""Spark's own pattern, and what Iceberg's catalogs and stores call their secrets, and passwords in URLs."""


def redaction_conf(present: str | None, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the setting, unless a user has made it.

    Args:
        present: Its value under `spark-submit`; None if it has none, or if Spark has not been started yet.
        environment: The environment of the process.
    """
    if present is not None or REDACTION in environment.get("PYSPARK_SUBMIT_ARGS", ""):
        return {}
    return {REDACTION: SECRETS}
