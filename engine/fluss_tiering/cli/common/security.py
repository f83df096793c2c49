"""The options with which every command proves who calls a server, and knows that it is the right one.

They stand before the command, or behind it with `--server`. A token itself is never an option, since all users of a
machine can read command lines.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Annotated

import typer
from typer.core import TyperOption

from fluss_tiering.client import security

TokenFile = Annotated[
    Path | None,
    typer.Option(
        envvar=security.TOKEN_FILE_VARIABLE,
        metavar="FILE",
        help=f"The file that holds the token of the caller. The variable {security.TOKEN_VARIABLE} may hold the token.",
    ),
]
Tls = Annotated[
    bool | None,
    typer.Option(
        "--tls/--no-tls",
        envvar=security.TLS_VARIABLE,
        help="Whether to use TLS. It is used anyway if an option names a certificate.",
        show_default=False,
    ),
]
TlsCa = Annotated[
    Path | None,
    typer.Option(
        envvar=security.TLS_CA_VARIABLE,
        metavar="FILE",
        help="The authorities in PEM that the server's certificate may come from. The default is those of the system.",
    ),
]
TlsCert = Annotated[
    Path | None,
    typer.Option(
        envvar=security.TLS_CERT_VARIABLE,
        metavar="FILE",
        help="The caller's certificate in PEM, for a server that asks for one.",
    ),
]
TlsKey = Annotated[
    Path | None,
    typer.Option(
        envvar=security.TLS_KEY_VARIABLE,
        metavar="FILE",
        help="The key of the caller's certificate in PEM.",
    ),
]


def use(
    *,
    token_file: TokenFile = None,
    tls: Tls = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
) -> None:
    """Let every client of this process, and of those that it starts, have these credentials.

    They are put into the environment, where clients look for them: it holds paths, and no secret that was not there.
    """
    files = {
        security.TOKEN_FILE_VARIABLE: token_file,
        security.TLS_CA_VARIABLE: tls_ca,
        security.TLS_CERT_VARIABLE: tls_cert,
        security.TLS_KEY_VARIABLE: tls_key,
    }
    for variable, path in files.items():
        if path is not None:
            # Before 0.28, Typer gives options that stand behind a command as texts.
            os.environ[variable] = str(Path(path).absolute())
    if tls is not None:
        os.environ[security.TLS_VARIABLE] = "true" if tls else "false"


@functools.cache
def options() -> list[TyperOption]:
    """Return the options of `use`, for a command that takes them behind its name."""
    app = typer.Typer(add_completion=False)
    app.command()(use)
    return [each for each in typer.main.get_command(app).params if isinstance(each, TyperOption) and not each.is_eager]


def about_nothing(nothing: str, hidden: str) -> str:
    """Return what a command says that has nothing to show.

    Args:
        nothing: For a caller who sees everything.
        hidden: For a caller who proves who they are, so that there may be more than they see.
    """
    return hidden if security.ClientSecurity.from_environment().proves_identity else nothing
