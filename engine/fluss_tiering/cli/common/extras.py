"""Which extra of the package to install when a command needs a module that is not there."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

from fluss_tiering.model.errors import ErrorCode, FlussTieringError

ROWS: Final = frozenset({"crc32c", "numba", "numpy", "pyarrow"})
"""The modules that read and write rows."""

_SPARK: Final = ROWS | {"py4j", "pyiceberg", "pyroaring", "pyspark", "rocksdict"}
_SERVER: Final = ROWS | {
    "cryptography",
    "grpc_health",
    "jwt",
    "prometheus_client",
    "pydantic",
    "pydantic_settings",
    "rocksdict",
    "sqlalchemy",
    "structlog",
}
MODULES: Final[Mapping[str, frozenset[str]]] = {
    "rows": ROWS,
    "spark": _SPARK,
    "server": _SERVER,
    "postgres": frozenset({"psycopg"}),
    "demo": _SPARK | _SERVER | {"duckdb", "duckdb_extension_avro", "duckdb_extension_iceberg"},
}
"""The modules that each extra brings, as far as this package imports them."""

_EXTRA_OF_COMMAND: Final[Mapping[str, str]] = {
    "adopt": "server",
    "demo": "demo",
    "health": "server",
    "serve": "server",
    "put": "rows",
    "scan": "rows",
    "tables": "rows",
    "token": "server",
}
_EXTRA_OF_OTHERS: Final = "spark"


def missing_extra(command: str, error: ModuleNotFoundError) -> FlussTieringError | None:
    """Return an error that says what to install, or None if the missing module belongs to no extra.

    Args:
        command: The command that was called, as "tier".
        error: What the import raised.
    """
    own = _EXTRA_OF_COMMAND.get(command, _EXTRA_OF_OTHERS)
    extra = next((name for name in (own, *MODULES) if error.name in MODULES[name]), None)
    if extra is None:
        return None
    return FlussTieringError(
        ErrorCode.INVALID_REQUEST,
        f"`fluss-tiering {command}` needs {error.name}, which is not installed: pip install 'fluss-tiering[{extra}]'",
    )


def check_installed(modules: frozenset[str]) -> None:
    """Find modules without loading them.

    Raises:
        ModuleNotFoundError: If one of them is not installed.
    """
    for name in sorted(modules):
        if find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
