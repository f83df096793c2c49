"""The class of commands: it takes the options of the connection, and shows examples in its help."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from typer.core import TyperCommand

from fluss_tiering.cli.common import security
from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.misspelled import meant
from fluss_tiering.model.table import TablePath

EXAMPLES: Final[Mapping[str, Sequence[str]]] = {
    "demo": ("fluss-tiering demo", "fluss-tiering demo --keep"),
    "serve": (
        "fluss-tiering serve --data-dir ~/fluss-tiering-data",
        "fluss-tiering serve --fluss coordinator:9123",
    ),
    "tables create": (
        "fluss-tiering tables create shop.orders --like orders.csv \\",
        "    --primary-key order_id --column 'amount DECIMAL(10, 2)'",
        "fluss-tiering tables create shop.clicks -c 'at TIMESTAMP' -c 'url STRING'",
    ),
    "tables alter": ("fluss-tiering tables alter shop.orders --set table.datalake.freshness=10min",),
    "put": (
        "fluss-tiering put shop.orders orders.csv",
        "fluss-tiering put shop.orders --delete cancelled.csv",
    ),
    "scan": (
        "fluss-tiering scan shop.orders --limit 10",
        "fluss-tiering scan shop.orders --format csv > orders.csv",
    ),
    "status": (
        "fluss-tiering status",
        "fluss-tiering status --failing",
        "fluss-tiering status shop.orders --server tiering.example.com:9133",
    ),
    "history": (
        "fluss-tiering history shop.orders",
        "fluss-tiering history shop.orders --all --limit 100",
    ),
    "resume": ("fluss-tiering resume shop.orders", "fluss-tiering resume --parked"),
    "tier": (
        "fluss-tiering tier shop.orders",
        "fluss-tiering tier --pending --master spark://spark.example.com:7077",
        "fluss-tiering tier shop.orders --print-submit",
    ),
    "package": ("fluss-tiering package --to s3://bucket/fluss-tiering",),
    "verify": ("fluss-tiering verify shop.orders",),
    "maintain": ("fluss-tiering maintain shop.orders",),
    "compact": ("fluss-tiering compact shop.orders",),
    "expire": ("fluss-tiering expire shop.orders --older-than 7d",),
    "clean": ("fluss-tiering clean shop.orders", "fluss-tiering clean shop.orders --delete"),
    "lake-conf": (
        "spark-sql $(fluss-tiering lake-conf shop.orders)",
        "fluss-tiering lake-conf shop.orders --for duckdb",
    ),
    "token create": ("fluss-tiering token create anna --role 'tierer=shop.*' --file tokens.json",),
}
"""The lines of each example, by the name of the command."""


def examples_of(command_path: str) -> Sequence[str]:
    """Return the examples of a command, such as `fluss-tiering tables create`; none if it has none."""
    return EXAMPLES.get(command_path.partition(" ")[2], ())


_NOT_THERE: Final = frozenset({ErrorCode.TABLE_NOT_EXIST, ErrorCode.DATABASE_NOT_EXIST})


@contextmanager
def did_you_mean(given: Mapping[str, Any]) -> Iterator[None]:
    """Add the nearest name to the error of the block that a table does not exist.

    Only names are near that the server lists for the caller.

    Args:
        given: The values of the command's parameters, by their names.
    """
    try:
        yield
    except FlussTieringError as error:
        near = _near_tables(given) if error.code in _NOT_THERE else ""
        if not near:
            raise
        raise FlussTieringError(error.code, f"{error.message}. Did you mean {near}?") from error


def _near_tables(given: Mapping[str, Any]) -> str:
    named = [given.get("table"), *(given.get("tables") or ())]
    paths = [str(each) for each in named if isinstance(each, TablePath)]
    if not paths or "server" not in given:
        return ""
    try:
        with TieringClient(given["server"]) as client:
            known = [str(each.path) for each in client.list_tables()]
    except FlussTieringError:
        # The first error says what is wrong.
        return ""
    near = [meant(each, known) for each in paths if each not in known]
    return " and ".join(dict.fromkeys(filter(None, near)))


class Command(TyperCommand):
    """A command. One that asks a server takes the options of the connection behind its name, too."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        asks_server = any("--server" in each.opts for each in self.params)
        self._of_connection: list[Any] = security.options() if asks_server else []
        for each in self._of_connection:
            # The help of each command would be mostly about these.
            each.hidden = True
        self.params += self._of_connection

    def invoke(self, ctx: Any) -> object:  # noqa: ANN401 - a type that typer keeps to itself
        """Run the command with the credentials that are given.

        Raises:
            FlussTieringError: INVALID_REQUEST if the value of an option is empty, as a variable of a shell is that is
                not set. Else it would mean the default.
        """
        for each in self.params:
            if ctx.params.get(each.name) == "":
                raise FlussTieringError(
                    ErrorCode.INVALID_REQUEST,
                    f"{max(each.opts, key=len)} is empty: expected a value. A variable of the shell that is not set is "
                    "empty, too",
                )
        if self._of_connection:
            security.use(**{each.name: ctx.params.pop(each.name) for each in self._of_connection})
        with did_you_mean(ctx.params):
            return super().invoke(ctx)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401
        """Write the examples, and which other options may stand here."""
        if shown := examples_of(ctx.command_path):
            with formatter.section("Examples"):
                formatter.write("".join(f"  {line}\n" for line in shown))
        if self._of_connection:
            names = ", ".join(max(each.opts, key=len) for each in self._of_connection)
            program = ctx.command_path.split()[0]
            formatter.write_paragraph()
            formatter.write_text(f"Options for a server that asks who calls: {names}. See {program} --help.")
