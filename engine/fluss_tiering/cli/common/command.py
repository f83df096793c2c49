"""The class of commands: it takes the options of the connection, and shows examples in its help."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

from fluss_tiering.cli.common import examples, security
from fluss_tiering.cli.common.near_tables import did_you_mean
from fluss_tiering.model.errors import ErrorCode, FlussTieringError


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
        if shown := examples.of(ctx.command_path):
            with formatter.section("Examples"):
                formatter.write("".join(f"  {line}\n" for line in shown))
        if self._of_connection:
            names = ", ".join(max(each.opts, key=len) for each in self._of_connection)
            program = ctx.command_path.split()[0]
            formatter.write_paragraph()
            formatter.write_text(f"Options for a server that asks who calls: {names}. See {program} --help.")
