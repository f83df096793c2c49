"""The types of settings, read from what users write, and what an error about a setting says was expected."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, get_args

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr
from pydantic.fields import FieldInfo
from pydantic_settings import NoDecode

from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.units import duration_text, memory_size_text, parse_duration_ms, parse_memory_size
from fluss_tiering.server.settings.values import checked_store_url, checked_url
from fluss_tiering.storage.fluss.rpc.call import ServerAddress

_OBJECT: Final = 'expected a JSON object, for example {"type": "rest", "uri": "https://catalog"}'


ValueT = TypeVar("ValueT")
ReadT = TypeVar("ReadT")


def _for_pydantic(read: Callable[[ValueT], ReadT]) -> Callable[[ValueT], ReadT]:
    """Return a function that raises its errors as the only kind that pydantic takes for a wrong value."""

    def reads(value: ValueT) -> ReadT:
        try:
            return read(value)
        except FlussTieringError as error:
            raise ValueError(error.message) from error

    return reads


def _memory_size(value: object) -> object:
    return parse_memory_size(value) if isinstance(value, str) else value


def _duration_ms(value: object) -> object:
    return parse_duration_ms(value) if isinstance(value, str) else value


def _folder(value: object) -> object:
    if value == "":
        raise ValueError("the path is empty: expected a folder; . is the present one")
    return value


def _file(value: object) -> object:
    if value == "":
        raise ValueError("the path is empty: expected a file")
    return value


def _json_object(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        found = json.loads(value)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON at its character {error.pos + 1}: {_OBJECT}") from error
    if not isinstance(found, dict):
        raise ValueError(f"it is JSON of another kind: {_OBJECT}")  # noqa: TRY004 - pydantic takes no TypeError
    return found


def _complete_catalog(properties: dict[str, str]) -> dict[str, str]:
    if properties and not {"type", "catalog-impl"} & properties.keys():
        raise ValueError(
            "neither 'type' nor 'catalog-impl' is among the properties: "
            'expected one of them, for example "type": "rest"; leave all out for the default catalog'
        )
    return properties


def _checked_store_url(url: SecretStr | None) -> SecretStr | None:
    if url is not None:
        checked_store_url(url.get_secret_value())
    return url


def _bootstrap_servers(text: str) -> str:
    return text and ",".join(str(address) for address in ServerAddress.parse_list(text))


DurationMs = Annotated[int, BeforeValidator(_for_pydantic(_duration_ms)), Field(gt=0)]
"""A duration in milliseconds. Users write it as Fluss does, for example 10min."""

_LARGEST: Final = 2**31 - 1
"""gRPC takes no larger number."""

MemorySize = Annotated[int, BeforeValidator(_for_pydantic(_memory_size)), Field(gt=0, le=_LARGEST)]
"""A size in bytes. Users write it as Fluss does, for example 10mb."""

READS_DURATIONS: Final = get_args(DurationMs)[1]
READS_SIZES: Final = get_args(MemorySize)[1]
"""What the types of durations and of sizes have in their metadata, and no other type has."""

Count = Annotated[int, Field(gt=0, le=_LARGEST)]
"""A number of things."""


def _issuer_url(text: str) -> str:
    return text and checked_url(text, "the URL")


Folder = Annotated[Path, BeforeValidator(_folder), AfterValidator(Path.absolute)]
"""The path of a folder, made absolute."""

OptionalFile = Annotated[Path | None, BeforeValidator(_file)]
"""The path of a file; None for none."""

CatalogProperties = Annotated[
    dict[str, str], NoDecode, BeforeValidator(_json_object), AfterValidator(_complete_catalog)
]
"""The properties of an Iceberg catalog. Users write them as a JSON object."""

StoreUrl = Annotated[SecretStr | None, AfterValidator(_for_pydantic(_checked_store_url))]
"""The URL of a PostgreSQL database; None for none."""

IssuerUrl = Annotated[str, AfterValidator(_for_pydantic(_issuer_url))]
"""A URL of https, or of http on this machine; empty for none."""

BootstrapServers = Annotated[str, AfterValidator(_for_pydantic(_bootstrap_servers))]
"""Addresses of servers of a Fluss cluster; empty for none."""


@dataclass(frozen=True, slots=True)
class FlussOption:
    """Marks a setting that Fluss has too.

    Attributes:
        key: The key of the setting in Fluss's `ConfigOptions`.
    """

    key: str


_OF_VALUES: Final = "Value error, "
_NUMBERS: Final = frozenset(
    {
        "greater_than",
        "greater_than_equal",
        "int_from_float",
        "int_parsing",
        "int_parsing_size",
        "int_type",
        "less_than_equal",
    }
)


def expected(field: FieldInfo, error: Mapping[str, Any]) -> str:
    """Return what was expected of a setting.

    Args:
        field: The setting.
        error: One of the errors of a `pydantic.ValidationError`.
    """
    kind = error["type"]
    if kind in _NUMBERS:
        return f"expected {_number(field)}"
    if kind.startswith("bool_"):
        return "expected true or false"
    if kind == "literal_error":
        return f"expected {error['ctx']['expected']}"
    if kind == "string_too_short":
        return "the text is empty: expected at least one character"
    if kind == "string_pattern_mismatch":
        return "expected HOST:PORT"
    if kind == "string_type" and len(error["loc"]) > 1:
        return f"the value of {error['loc'][1]!r} is of another kind: expected a text"
    return str(error["msg"]).removeprefix(_OF_VALUES)


def _number(field: FieldInfo) -> str:
    """Return which numbers, durations or sizes a setting takes."""
    least = max([*_limits(field, "ge"), *(each + 1 for each in _limits(field, "gt"))])
    most = next(iter(_limits(field, "le")), None)
    if READS_DURATIONS in field.metadata:
        return "a duration above 0" if least == 1 else f"a duration of at least {duration_text(least)}"
    if most is not None and READS_SIZES in field.metadata:
        return f"a size above 0 and below {memory_size_text(most + 1)}"
    return f"a whole number from {least} to {most}"


def _limits(field: FieldInfo, name: str) -> list[int]:
    """Return the limits of a number that have a name of pydantic, also of a number that need not be set."""
    kinds = [each for kind in get_args(field.annotation) for each in getattr(kind, "__metadata__", ())]
    limits = [*field.metadata, *(limit for kind in kinds for limit in getattr(kind, "metadata", ()))]
    return [getattr(each, name) for each in limits if hasattr(each, name)]
