"""What a Spark session of a user's own needs to read Fluss tables and tiering statuses.

Imports neither pyspark nor pyarrow, as `submit`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.spark.submit import JARS_VARIABLE

CATALOG_JAR: Final = Path(__file__).parents[1] / "jars" / "fluss-tiering-spark.jar"
"""What Spark's JVM needs: part of an installed package, and compiled by `make setup` in a checkout."""

CATALOG_CLASS: Final = "fluss.tiering.spark.FlussCatalog"

DEFAULT_CATALOG: Final = "fluss_catalog"


def session_conf(
    server: str | None = None,
    *,
    catalog: str = DEFAULT_CATALOG,
    environment: Mapping[str, str] = os.environ,
    jar: Path = CATALOG_JAR,
) -> dict[str, str]:
    """Spark settings by which a session has a catalog of the server's tables, and `format("fluss")`.

    To be set before the session starts: `for item in session_conf().items(): builder.config(*item)`. Spark's driver
    plans with the `python3` on PATH unless its environment names another in `PYSPARK_PYTHON`; no setting can.

    Args:
        server: "host:port"; None leaves it to `FLUSS_TIERING_SERVER` where Spark's driver runs, else the default.
        catalog: what the catalog is called in SQL.
        environment: where `PYSPARK_PYTHON` and `FLUSS_TIERING_SPARK_JARS` may be set.
        jar: of the catalog.

    Raises:
        FlussTieringError: INVALID_REQUEST when the catalog's jar is not there.
    """
    if not jar.exists():
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"the catalog's jar is not there: expected {jar}; run `make setup` in a checkout, or install a wheel",
        )
    conf = {
        "spark.jars": ",".join(filter(None, (environment.get(JARS_VARIABLE), str(jar)))),
        "spark.pyspark.python": environment.get("PYSPARK_PYTHON", sys.executable),
        f"spark.sql.catalog.{catalog}": CATALOG_CLASS,
    }
    if server is not None:
        conf[f"spark.sql.catalog.{catalog}.server"] = server
    return conf
