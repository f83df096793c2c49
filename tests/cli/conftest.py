"""The command, called as its console script calls it, against the shared server."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
import typer
from rich.console import Console

from engine_fixtures import client, server
from fluss_tiering.cli import main
from fluss_tiering.cli.common import output

__all__ = ["client", "server"]

_NUMBERS = itertools.count()
_made_once = functools.cache(typer.main.get_command)


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    def refuses(self, code: int, *words: str) -> bool:
        """Whether it ended with this code and one clear line that has the words, and no traceback."""
        assert self.code == code, self
        assert "Traceback" not in self.out + self.err
        assert all(word in self.err for word in words), self.err
        return True


@pytest.fixture
def command(server, monkeypatch, capsys) -> Callable[..., Answer]:
    monkeypatch.setenv("FLUSS_TIERING_SERVER", server.target)
    monkeypatch.setattr("typer.main.get_command", _made_once)
    # Made anew, since what the environment says of terminals was read when the module was loaded.
    monkeypatch.setattr(output, "console", Console(width=160, height=100, force_terminal=False))

    def call(*arguments: str) -> Answer:
        monkeypatch.setattr("sys.argv", ["fluss-tiering", *map(str, arguments)])
        capsys.readouterr()
        try:
            main.main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        return Answer(code, *capsys.readouterr())

    return call


@pytest.fixture
def table() -> str:
    """The name of a table that no other test has."""
    return f"cli.table_{next(_NUMBERS)}"


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """A file with three rows."""
    prices = pa.array([1, 2, 3]).cast(pa.decimal128(20, 0))
    path = tmp_path / "orders.parquet"
    pa.parquet.write_table(
        pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": ["a", "b", None], "price": prices}), path
    )
    return path
