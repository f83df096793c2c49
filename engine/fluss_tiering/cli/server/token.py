"""`fluss-tiering token`: make, list and revoke the tokens by which callers of a server prove who they are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Final

import typer

from fluss_tiering.cli.common import options, output
from fluss_tiering.cli.common.command import Command
from fluss_tiering.cli.common.output import Heading
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.edge.callers.roles import ALL_TABLES, Grant
from fluss_tiering.server.edge.callers.tokens import PRIVATE, StaticToken, TokenFile
from fluss_tiering.storage.files import reporting_os_errors, write_durably

app = typer.Typer(
    help="Make, list and revoke the tokens by which callers of a server prove who they are.",
    no_args_is_help=True,
)

_STANDARD_OUTPUT: Final = Path("-")

_File = Annotated[
    Path,
    typer.Option(
        "--file",
        "-f",
        envvar="FLUSS_TIERING_TOKENS_FILE",
        metavar="FILE",
        dir_okay=False,
        help="The file of the tokens, which the server's setting tokens-file names. It holds hashes and no tokens.",
        show_default=False,
    ),
]
_Roles = Annotated[
    list[str],
    typer.Option(
        "--role",
        "-r",
        metavar="ROLE[=PATTERN]",
        help="What its owner may do: reader, writer, tierer, operator or admin. With a pattern, only for tables "
        "such as shop.*. Several roles may be given.",
        show_default=False,
    ),
]


@app.command("create", cls=Command)
def create_token(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Whose token it is, as the audit log shows it.", show_default=False)
    ],
    file: _File,
    role: _Roles,
    expires_in: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="How long the token is valid, for example 90d. The default is for ever."),
    ] = None,
    output_file: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            dir_okay=False,
            allow_dash=True,
            help="Where to write the token, in the place of an older one. Only its owner may read the file. Without "
            "this option, or with -, the token is printed.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Make a token, and print it or write it into a file.

    The file of the tokens keeps its hash only, so that nobody can find the token out later.
    """
    if output_file == _STANDARD_OUTPUT:
        output_file = None
    if output_file is not None and output_file.resolve() == file.resolve():
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"--output names {file}, which is the file of the tokens: expected another file, for this token alone",
        )
    now = datetime.now(UTC)
    expires = None if expires_in is None else now + _lifetime(expires_in)
    token, text = StaticToken.create(name, [_grant(each) for each in role], now, expires)
    tokens = TokenFile(file)
    tokens.add(token)
    try:
        if output_file is None:
            output.print_line(text)
            return
        with reporting_os_errors("write", output_file):
            write_durably(output_file, f"{text}\n".encode(), PRIVATE)
    except (FlussTieringError, OSError):
        # Nobody would ever have this token.
        tokens.remove(token.id)
        raise
    output.print_line(f"Wrote the token {token.id} to {output_file}.")


def _lifetime(text: str) -> timedelta:
    lifetime = options.duration("--expires-in", text)
    if not lifetime:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"--expires-in is {text!r}, so that the token would never be valid: expected a longer time, such as 90d",
        )
    return lifetime


@app.command("list", cls=Command)
def list_tokens(file: _File, json: options.Json = False) -> None:
    """Show the tokens, without their secrets."""
    tokens = _existing(file).read()
    if json:
        output.print_json(_as_json(each) for each in tokens)
        return
    output.print_table(
        None,
        [Heading("ID"), Heading("Name"), Heading("Roles"), Heading("Created", spare=1), Heading("Expires")],
        (
            [
                each.id,
                output.text_cell(each.name),
                output.text_cell(", ".join(_roles(each))),
                output.ago_cell(_milliseconds(each.created)),
                output.ago_cell(_milliseconds(each.expires)),
            ]
            for each in tokens
        ),
        empty="There are no tokens.",
    )


@app.command("revoke", cls=Command)
def revoke_token(
    token_id: Annotated[
        str, typer.Argument(metavar="ID", help="The id of the token, as `token list` shows it.", show_default=False)
    ],
    file: _File,
) -> None:
    """Revoke a token.

    A server refuses it within a second or two, and ends the streams that were opened with it.
    """
    _existing(file).remove(token_id)
    output.print_line(f"Revoked the token {token_id}.")


def _existing(file: Path) -> TokenFile:
    if not file.exists():
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST, f"there is no file {file}: check the path; `token create` makes the file"
        )
    return TokenFile(file)


def _grant(text: str) -> Grant:
    role, equals, tables = text.partition("=")
    return Grant.parse(role, tables if equals else ALL_TABLES)


def _roles(token: StaticToken) -> list[str]:
    return [
        each.role.value if each.tables.text == ALL_TABLES else f"{each.role.value}={each.tables.text}"
        for each in token.grants
    ]


def _milliseconds(time: datetime | None) -> int | None:
    return None if time is None else int(time.timestamp() * 1000)


def _as_json(token: StaticToken) -> dict[str, object]:
    return {
        "id": token.id,
        "name": token.name,
        "roles": _roles(token),
        "created": output.iso_time(_milliseconds(token.created)),
        "expires": output.iso_time(_milliseconds(token.expires)),
    }
