"""Check the arguments of operators, and whether the server tiers the tables that they name at all."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider_fluss.lease import MAX_LEASE_DURATION_MS
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.table_options import LAKE_ENABLED, is_set
from fluss_tiering.model.units import parse_duration_ms

if TYPE_CHECKING:
    from fluss_tiering.client import TieringClient
    from fluss_tiering.model.table import TableInfo

_MILLISECOND: Final = timedelta(milliseconds=1)
_DURATION: Final = "expected a timedelta or a text such as '6h'"
_SHOWN: Final = 200
"""How many characters of a wrong value a message shows."""


class WrongArgumentError(AirflowFailException, ValueError):
    """An argument of an operator has a wrong value. Another try of the task would not change that."""


def table_paths(tables: object) -> list[TablePath]:
    """Return the tables that the argument `tables` names, each once.

    Raises:
        WrongArgumentError: It is not a list of `database.table` with at least one table.
    """
    if isinstance(tables, str | bytes | Mapping) or not isinstance(tables, Collection) or not tables:
        raise WrongArgumentError(
            f"tables is {shown(tables)}: expected a list of DATABASE.TABLE with at least one table"
        )
    return list(dict.fromkeys(_path(each) for each in tables))


def _path(table: object) -> TablePath:
    if not isinstance(table, str):
        raise WrongArgumentError(
            f"tables has {shown(table)} in it: expected a list of texts DATABASE.TABLE, for example fluss.orders"
        )
    try:
        return TablePath.parse(table)
    except FlussTieringError as error:
        raise WrongArgumentError(f"tables has {shown(table)} in it: {error.message}") from None


def whole_number(name: str, value: object) -> int:
    """Return the whole number that an argument stands for, which a template may have made a text.

    Raises:
        WrongArgumentError: The value is not a whole number.
    """
    if isinstance(value, str) and value.strip().removeprefix("-").isdecimal():
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise WrongArgumentError(f"{name} is {shown(value)}: expected a whole number")


def duration_ms(name: str, value: object) -> int:
    """Return a duration in whole milliseconds.

    Args:
        name: The name of the argument.
        value: A timedelta or a text such as `30min`.

    Raises:
        WrongArgumentError: The value is neither, is negative, or is not zero but shorter than a millisecond.
    """
    if isinstance(value, str):
        try:
            return parse_duration_ms(value)
        except FlussTieringError as error:
            raise WrongArgumentError(f"{name}: {error.message}") from None
    if not isinstance(value, timedelta):
        raise WrongArgumentError(f"{name} is {shown(value)}: {_DURATION}")
    if value < timedelta(0) or timedelta(0) < value < _MILLISECOND:
        raise WrongArgumentError(f"{name} is {value}: {_DURATION}, of 0 or at least one millisecond")
    return value // _MILLISECOND


def lease_duration_ms(value: object) -> int:
    """Return the argument `lease_duration` in milliseconds.

    Raises:
        WrongArgumentError: It is not a duration that the server grants a lease for.
    """
    duration = duration_ms("lease_duration", value)
    if not 1 <= duration <= MAX_LEASE_DURATION_MS:
        raise WrongArgumentError(f"lease_duration is {value}: {_DURATION}, from one millisecond to 30 days")
    return duration


def shown(value: object) -> str:
    """Return the value for a message, cut if it is long."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


WRONG_TABLES: Final = frozenset({ErrorCode.INVALID_TABLE, ErrorCode.DATABASE_NOT_EXIST, ErrorCode.TABLE_NOT_EXIST})
"""Errors that another try will not change."""


def is_tiered(table: TableInfo) -> bool:
    """Return whether the table has the option that makes the server tier it."""
    return is_set(table.descriptor.properties, LAKE_ENABLED)


def why_not_tiered(client: TieringClient, paths: Iterable[TablePath]) -> dict[TablePath, str]:
    """Return the tables that do not exist, or whose tiering is switched off, each with one sentence that says so.

    Raises:
        FlussTieringError: UNAVAILABLE if the server cannot be reached.
    """
    found = {}
    for path in paths:
        try:
            (table,) = client.get_tables([path])
        except FlussTieringError as error:
            if error.code not in WRONG_TABLES:
                raise
            found[path] = error.message
            continue
        if not is_tiered(table):
            found[path] = f"the tiering of {path} is switched off: alter it with {LAKE_ENABLED.key}=true"
    return found
