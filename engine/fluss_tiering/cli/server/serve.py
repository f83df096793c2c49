"""`fluss-tiering serve` and `adopt`: run the tiering server, and change what its data folder is for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.markup import escape

from fluss_tiering.cli.common import output
from fluss_tiering.model.errors import ErrorCode, FlussTieringError


def serve(
    data_dir: Annotated[
        str | None,
        typer.Option(
            "--data-dir",
            "-d",
            metavar="FOLDER",
            help="The data folder of the server, with its tables, leases and statuses.",
            show_default="./fluss-tiering-data",
        ),
    ] = None,
    fluss: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT[,HOST:PORT]",
            help="The addresses of one or more servers of the Fluss cluster whose tables are tiered.",
            show_default="embedded storage",
        ),
    ] = None,
    host: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="The address to listen on.", show_default="127.0.0.1")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="The port to listen on. 0 chooses a free port.", show_default="9133"),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="The PostgreSQL database for leases, statuses and epochs: postgresql://USER:PASSWORD@HOST/DATABASE.",
            show_default="SQLite in the data folder",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "-D",
            metavar="KEY=VALUE",
            help="Any other setting by its key, for example kv.snapshot.interval=5min.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Run the tiering server until SIGTERM or Ctrl-C.

    With --fluss the server tiers the tables of a Fluss cluster. Without it the server stores tables itself, in its
    embedded storage.

    The documentation lists every setting on its page Configuration. Each setting can also be set by an environment
    variable. Its name is FLUSS_TIERING_ followed by the key in capitals, with underscores for dots and hyphens.
    """
    from fluss_tiering.server.app import run  # noqa: PLC0415 - the server's libraries, for this command only
    from fluss_tiering.server.settings.server_settings import load_settings, settings_from_keys  # noqa: PLC0415

    options = {"data_dir": data_dir, "fluss": fluss, "host": host, "port": port, "store_url": store}
    given = {name: value for name, value in options.items() if value is not None}
    of_keys = settings_from_keys(settings or ())
    for name in of_keys.keys() & given.keys():
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"the setting {name.replace('_', '-')} is given with -D and with an option of its own: expected it once",
        )
    loaded = load_settings(**of_keys, **given)
    try:
        run(loaded)
    except FlussTieringError as error:
        # The usage was right and another try may help, so the exit code is not the one for wrong usage.
        output.print_error(error.message)
        raise typer.Exit(1) from None


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
