"""`fluss-tiering spark-conf` and `class-archive`: what Spark needs to read Fluss tables, and to start faster."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

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


def class_archive(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", dir_okay=False, resolve_path=True, help="The file to write the archive to."),
    ],
) -> None:
    """Make a class-data archive, with which Spark starts in half the time.

    Make the archive once on each machine, or in an image. Applications use the archive that the environment variable
    FLUSS_TIERING_CLASS_ARCHIVE names. Make it again after an update of Spark or Java, because a JVM ignores an archive
    of another version.
    """
    from fluss_tiering.spark.startup.class_archive import make_class_archive  # noqa: PLC0415 - Spark, for this command only
    from fluss_tiering.spark.startup.jvm import ARCHIVE_VARIABLE  # noqa: PLC0415

    size = make_class_archive(file, lambda: output.print_progress("Starting Spark and loading its classes …"))
    output.print_sentence(
        f"{escape(str(file))} has been written ({size / 1e6:,.0f} MB). "
        f"Set {ARCHIVE_VARIABLE} to its path, so that applications use it."
    )
