"""`fluss-tiering serve`: the tiering server in the foreground."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fluss_tiering.cli import output
from fluss_tiering.model.errors import FlussTieringError


def serve(
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir", "-d", help="Folder of tables, leases and statuses.", show_default="./fluss-tiering-data"
        ),
    ] = None,
    fluss: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT[,HOST:PORT]",
            help="Fluss cluster whose tables are tiered, by any of its servers.",
            show_default="tables of the server's own",
        ),
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.", show_default="127.0.0.1")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="0 takes a free one.", show_default="9133")] = None,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="PostgreSQL database of leases, statuses and epochs, as postgresql://USER:PASSWORD@HOST:PORT/DATABASE.",
            show_default="SQLite in the data folder",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "-D", metavar="KEY=VALUE", help="Any setting by its key, as kv.snapshot.interval=5min.", show_default=False
        ),
    ] = None,
) -> None:
    """Run the tiering server until SIGTERM or Ctrl-C: of a Fluss cluster's tables, or of tables that it keeps itself.

    docs/reference/configuration.md lists every setting. Each can also be set by an environment variable: FLUSS_TIERING_
    and its key in capitals, with underscores.
    """
    from fluss_tiering.server.app import run  # noqa: PLC0415 - the server's libraries, for this command only
    from fluss_tiering.server.settings import load_settings, settings_from_keys  # noqa: PLC0415

    options = {"data_dir": data_dir, "fluss": fluss, "host": host, "port": port, "store_url": store}
    given = {name: value for name, value in options.items() if value is not None}
    loaded = load_settings(**{**settings_from_keys(settings or ()), **given})
    try:
        run(loaded)
    except FlussTieringError as error:
        # However it is called for a client: the command was right, so that trying again may help.
        output.print_error(error.message)
        raise typer.Exit(1) from None
