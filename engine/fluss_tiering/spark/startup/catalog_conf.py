"""The settings that a user's own Spark session needs to read Fluss tables and tiering statuses.

Like `submit`, this module imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.spark.submit import JARS_VARIABLE
from fluss_tiering.spark.versions import spark_version

CATALOG_JAR: Final = Path(__file__).parents[1] / "jars" / "fluss-tiering-spark.jar"
"""The jar that Spark's JVM needs. It is part of an installed package; in a checkout `make setup` compiles it."""

CATALOG_CLASS: Final = "fluss.tiering.spark.FlussCatalog"

DEFAULT_CATALOG: Final = "fluss_catalog"


def session_conf(
    server: str | None = None,
    *,
    catalog: str = DEFAULT_CATALOG,
    environment: Mapping[str, str] = os.environ,
    jar: Path = CATALOG_JAR,
) -> dict[str, str]:
    """Return Spark settings with which a session has a catalog of the server's tables, and `format("fluss")`.

    Set them before the session starts: `for item in session_conf().items(): builder.config(*item)`. Spark's driver
    plans with the `python3` on PATH, unless `PYSPARK_PYTHON` in its environment names another. No setting can change
    this.

    Args:
        server: The server's address, "host:port". None stands for `FLUSS_TIERING_SERVER` in the environment of Spark's
            driver, or else for the default address.
        catalog: The name of the catalog in SQL.
        environment: The environment, in which `PYSPARK_PYTHON` and `FLUSS_TIERING_SPARK_JARS` may be set.
        jar: The catalog's jar.

    Raises:
        FlussTieringError: INVALID_REQUEST if the catalog's jar does not exist, or for a Spark without such catalogs.
    """
    version = spark_version()
    if version != "4.1":
        instead = (
            '`format("fluss")` reads tables there without any setting'
            if version == "4.0"
            else "read the lake tables there, or use `fluss-tiering scan`"
        )
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST, f"the catalog needs Spark 4.1, but pyspark {version} is installed: {instead}"
        )
    if not jar.exists():
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"the catalog's jar does not exist: expected {jar}; run `make setup` in a checkout, or install a wheel",
        )
    conf = {
        "spark.jars": ",".join(filter(None, (environment.get(JARS_VARIABLE), str(jar)))),
        "spark.pyspark.python": environment.get("PYSPARK_PYTHON", sys.executable),
        f"spark.sql.catalog.{catalog}": CATALOG_CLASS,
    }
    if server is not None:
        conf[f"spark.sql.catalog.{catalog}.server"] = server
    return conf
