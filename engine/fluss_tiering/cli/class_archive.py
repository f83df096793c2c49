"""`fluss-tiering class-archive`: what Spark's JVM loads, for a faster start."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from fluss_tiering.cli import output


def class_archive(
    file: Annotated[Path, typer.Argument(metavar="FILE", dir_okay=False, resolve_path=True, help="The archive.")],
) -> None:
    """Make a class-data archive, with which Spark starts in half the time: once for a machine, or in an image.

    Applications use it where FLUSS_TIERING_CLASS_ARCHIVE names it. Make it anew after an update of Spark or Java: a JVM
    that it does not fit ignores it.
    """
    from fluss_tiering.spark.startup.class_archive import make_class_archive  # noqa: PLC0415 - Spark, for this command only
    from fluss_tiering.spark.startup.driver_jvm import ARCHIVE_VARIABLE  # noqa: PLC0415

    size = make_class_archive(file)
    output.console.print(
        f"{escape(str(file))} is made, {size / 1e6:,.0f} MB. "
        f"Applications start with it where {ARCHIVE_VARIABLE} names it.",
        highlight=False,
        soft_wrap=True,
    )
