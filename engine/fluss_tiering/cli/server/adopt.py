"""`fluss-tiering adopt`: let a copied data folder stand on its own, or be used with another database."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.markup import escape

from fluss_tiering.cli.common import output


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
    """Let a copied data folder stand on its own, or let a folder be used with another kind of database.

    No server may use the folder meanwhile. A copy gets an id of its own. Tables in a lake catalog of the settings are
    not copied with the folder: only one of two copies may tier into such a catalog. The default lake of the folder has
    absolute paths, so that a folder with one has to keep its path.
    """
    from fluss_tiering.server.backends.embedded.adoption import adopt_data_dir  # noqa: PLC0415 - the server's libraries
    from fluss_tiering.server.core.store.note import StoreKind  # noqa: PLC0415

    done = adopt_data_dir(data_dir, None if store is None else StoreKind(store))
    from_where = "" if done.original is None else f", apart from {done.original}"
    output.print_sentence(f"{escape(str(done.root))} stands on its own now{escape(from_where)}.")
    if done.original is not None:
        output.print_sentence(f"Its id is {done.data_dir_id}, which a copied PostgreSQL database has to be bound to.")
    if store is not None:
        output.print_sentence(
            f"It uses {store} from now on. If that has no database of this folder yet, the next start makes a new one."
        )
