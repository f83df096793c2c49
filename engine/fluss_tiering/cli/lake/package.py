"""`fluss-tiering package`: put the application where drivers on other machines find it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from fluss_tiering.cli.common import output
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.spark.submit import write_package


def package(
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="URI",
            help="The folder: a path, or an address such as s3://bucket/fluss-tiering.",
            show_default=False,
        ),
    ],
) -> None:
    """Put the Spark applications, and the archive that they import, into a folder that drivers elsewhere can read.

    A driver runs application.py of this folder with the archive as --py-files. `fluss-tiering tier TABLE --print-submit
    --json --package URI` prints all that it needs. Its Python needs the requirements of `fluss-tiering[spark]`.
    """
    from pyarrow import fs  # noqa: PLC0415 - pyarrow, for this command only

    with tempfile.TemporaryDirectory(prefix="fluss-tiering-package-") as folder:
        files = write_package(Path(folder))
        try:
            store, path = fs.FileSystem.from_uri(to if ":/" in to else Path(to).resolve().as_uri())
            store.create_dir(path)
            fs.copy_files(folder, path, destination_filesystem=store)
        except (OSError, ValueError) as error:
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST, f"--to {to} cannot be written: {str(error).splitlines()[0]}"
            ) from error
    names = ", ".join(file.name for file in files)
    output.print_sentence(f"Wrote {names} to {escape(to)}.")
