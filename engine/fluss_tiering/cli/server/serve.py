"""`fluss-tiering serve`: run the tiering server in the foreground."""

from __future__ import annotations

from typing import Annotated

import typer

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
