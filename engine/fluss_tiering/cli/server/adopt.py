"""`fluss-tiering adopt`: let a data folder that was moved or copied stand on its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.markup import escape

from fluss_tiering.cli.common import output
from fluss_tiering.plural import counted


def _folder(text: str) -> Path:
    # An empty text is a shell's unset variable more often than the present folder.
    if not text or not Path(text).is_dir():
        raise typer.BadParameter(f"{text!r} is no folder: expected the data folder of a server")
    return Path(text)


def adopt(
    data_dir: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", parser=_folder, help="The data folder, where it is now."),
    ],
    store: Annotated[
        Literal["sqlite", "postgresql"] | None,
        typer.Option(
            help="Also let the server use this kind of database from now on, and begin with a new one. The leases, "
            "tiering epochs and history of the other database are not taken over.",
            show_default="the one that was used",
        ),
    ] = None,
) -> None:
    """Let a data folder that was moved or copied stand on its own, before a server uses it.

    The files of the default lake name each other by absolute paths. The command rewrites these paths, so that rounds
    write into the lake of this folder. No server may use the folder meanwhile. A copy gets an id of its own.

    Tables in a lake catalog of the settings are not copied with the folder. Only one of two copies may tier into such a
    catalog.
    """
    from fluss_tiering.server.embedded.adoption import adopt_data_dir  # noqa: PLC0415 - the server's libraries
    from fluss_tiering.server.store.note import StoreKind  # noqa: PLC0415

    done = adopt_data_dir(data_dir, None if store is None else StoreKind(store))
    tables, rewritten = (0, 0) if done.lake is None else (done.lake.tables, done.lake.files)
    from_where = "" if done.original is None else f", apart from {done.original}"
    output.print_sentence(
        f"{escape(str(done.root))} stands on its own now{escape(from_where)}. "
        f"{tables:,} lake {'table was' if tables == 1 else 'tables were'} changed."
    )
    if rewritten and not tables:
        output.print_sentence(f"{counted(rewritten, 'file')} of its lake named another folder, and this one now.")
    if not done.lake_catalog.exists():
        output.print_sentence(
            f"It has no lake of its own: there is no {escape(str(done.lake_catalog))}. If the folder that it comes "
            "from has one, copy the folder again as a whole, and adopt it anew."
        )
    if done.original is not None:
        output.print_sentence(f"Its id is {done.data_dir_id}, which a copied PostgreSQL database has to be bound to.")
    for table, files in ({} if done.lake is None else done.lake.missing).items():
        output.print_warning(
            f"the lake table {table} lacks {counted(len(files), 'file')}, the first of which is {files[0]}: "
            "if the folder is a copy, copy it again as a whole and adopt it anew, or readers will fail"
        )
    if store is not None:
        output.print_sentence(
            f"It uses {store} from now on. If that has no database of this folder yet, the next start makes a new one."
        )
