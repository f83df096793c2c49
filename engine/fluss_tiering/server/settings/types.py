"""The types of settings: durations, sizes, files and others, read from what users write."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, get_args

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr
from pydantic_settings import NoDecode

from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.units import parse_duration_ms, parse_memory_size
from fluss_tiering.server.settings.values import checked_store_url, checked_url
from fluss_tiering.storage.fluss.rpc.call import ServerAddress

_OBJECT: Final = 'expected a JSON object, for example {"type": "rest", "uri": "https://catalog"}'


def _memory_size(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return parse_memory_size(value)
    except FlussTieringError as error:
        raise ValueError(error.message) from error


def _duration_ms(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return parse_duration_ms(value)
    except FlussTieringError as error:
        raise ValueError(error.message) from error


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
        try:
            checked_store_url(url.get_secret_value())
        except FlussTieringError as error:
            raise ValueError(error.message) from error
    return url


def _bootstrap_servers(text: str) -> str:
    if text:
        try:
            return ",".join(str(address) for address in ServerAddress.parse_list(text))
        except FlussTieringError as error:
            raise ValueError(error.message) from error
    return text


DurationMs = Annotated[int, BeforeValidator(_duration_ms), Field(gt=0)]
"""A duration in milliseconds. Users write it as Fluss does, for example 10min."""

_LARGEST: Final = 2**31 - 1
"""gRPC takes no larger number."""

MemorySize = Annotated[int, BeforeValidator(_memory_size), Field(gt=0, le=_LARGEST)]
"""A size in bytes. Users write it as Fluss does, for example 10mb."""

READS_DURATIONS: Final = get_args(DurationMs)[1]
READS_SIZES: Final = get_args(MemorySize)[1]
"""What the types of durations and of sizes have in their metadata, and no other type has."""

Count = Annotated[int, Field(gt=0, le=_LARGEST)]
"""A number of things."""


def _simple_values(claims: dict[str, Any]) -> dict[str, Any]:
    wrong = [name for name, value in claims.items() if not isinstance(value, str | int | bool)]
    if wrong:
        raise ValueError(
            f"the value of {', '.join(wrong)} is of another kind: expected texts, whole numbers, true or false, for "
            'example {"email_verified": true}'
        )
    return claims


def _issuer_url(text: str) -> str:
    try:
        return text and checked_url(text, "the URL")
    except FlussTieringError as error:
        raise ValueError(error.message) from error


Folder = Annotated[Path, BeforeValidator(_folder), AfterValidator(Path.absolute)]
"""The path of a folder, made absolute."""

OptionalFile = Annotated[Path | None, BeforeValidator(_file)]
"""The path of a file; None for none."""

CatalogProperties = Annotated[
    dict[str, str], NoDecode, BeforeValidator(_json_object), AfterValidator(_complete_catalog)
]
"""The properties of an Iceberg catalog. Users write them as a JSON object."""

StoreUrl = Annotated[SecretStr | None, AfterValidator(_checked_store_url)]
"""The URL of a PostgreSQL database; None for none."""

RequiredClaims = Annotated[dict[str, Any], NoDecode, BeforeValidator(_json_object), AfterValidator(_simple_values)]
"""Claims of tokens and what they must be. Users write them as a JSON object."""

IssuerUrl = Annotated[str, AfterValidator(_issuer_url)]
"""A URL of https, or of http on this machine; empty for none."""

BootstrapServers = Annotated[str, AfterValidator(_bootstrap_servers)]
"""Addresses of servers of a Fluss cluster; empty for none."""


@dataclass(frozen=True, slots=True)
class FlussOption:
    """Marks a setting that Fluss has too.

    Attributes:
        key: The key of the setting in Fluss's `ConfigOptions`.
    """

    key: str
