"""`fluss-tiering serve`: the tiering server in the foreground."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def serve(
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir", "-d", help="Folder of tables, leases and statuses.", show_default="./fluss-tiering-data"
        ),
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.", show_default="127.0.0.1")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="0 takes a free one.", show_default="9133")] = None,
) -> None:
    """Run the tiering server with the embedded storage until SIGTERM or Ctrl-C.

    Every option can also be set by an environment variable, FLUSS_TIERING_ and its name in capitals.
    """
    from fluss_tiering.server.app import run  # noqa: PLC0415 - the server's libraries, for this command only
    from fluss_tiering.server.settings import load_settings  # noqa: PLC0415

    given = {"data_dir": data_dir, "host": host, "port": port}
    run(load_settings(**{name: value for name, value in given.items() if value is not None}))
