"""`fluss-tiering class-archive`: make an archive of Spark's classes, with which the JVM starts faster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from fluss_tiering.cli.common import output


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
    from fluss_tiering.spark.startup.driver_jvm import ARCHIVE_VARIABLE  # noqa: PLC0415

    size = make_class_archive(file, lambda: output.print_progress("Starting Spark and loading its classes …"))
    output.print_sentence(
        f"{escape(str(file))} has been written ({size / 1e6:,.0f} MB). "
        f"Set {ARCHIVE_VARIABLE} to its path, so that applications use it."
    )
