"""`fluss-tiering spark-conf`: print the settings with which Spark reads Fluss tables."""

from __future__ import annotations

import os
import re
from typing import Annotated

import typer

from fluss_tiering.cli.common import extras, options, output
from fluss_tiering.client import DEFAULT_TARGET
from fluss_tiering.client.target import Target
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.spark.startup.catalog_conf import DEFAULT_CATALOG, session_conf
from fluss_tiering.spark.submit import conf_arguments


def spark_conf(
    catalog: Annotated[str, typer.Option(metavar="NAME", help="The name of the catalog in SQL.")] = DEFAULT_CATALOG,
    server: options.Server = DEFAULT_TARGET,
) -> None:
    """Print arguments for spark-sql, pyspark and spark-submit, for example: spark-sql $(fluss-tiering spark-conf).

    With these arguments Spark has a catalog with the tables of the server and the table sys.lake_tiering_status, and
    the data source format "fluss".
    """
    if not re.fullmatch(r"\w+", catalog):
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"--catalog {catalog!r}: expected a name of letters, digits and _, for example {DEFAULT_CATALOG}",
        )
    Target.parse(server)
    # Spark reads tables with the Python that runs this command, unless the variable names another.
    if "PYSPARK_PYTHON" not in os.environ:
        extras.check_installed(extras.ROWS)
    output.print_arguments(conf_arguments(session_conf(server, catalog=catalog)))
