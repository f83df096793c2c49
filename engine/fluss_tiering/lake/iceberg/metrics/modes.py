"""Which metrics are written of which column, as the table's properties `write.metadata.metrics.*` say it.

The rules are those of Iceberg's `MetricsConfig`. As there, a value that is not a mode counts as if it were not set.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

_DEFAULT: Final = "write.metadata.metrics.default"
_COLUMN: Final = "write.metadata.metrics.column."
_MAX_INFERRED: Final = "write.metadata.metrics.max-inferred-column-defaults"
_MAX_INFERRED_DEFAULT: Final = 100
_TRUNCATE: Final = re.compile(r"truncate\(([0-9]{1,9})\)")

IcebergType: TypeAlias = str | Mapping[str, Any]
"""A type in Iceberg's JSON."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MetricsMode:
    """What is written of a column.

    Attributes:
        counts: Whether values, nulls and NaNs are counted.
        bounds: Whether there is a lower and an upper bound.
        length: The length of a bound in code points or bytes; None if bounds are not shortened.
    """

    counts: bool = True
    bounds: bool = True
    length: int | None = None


NONE: Final = MetricsMode(counts=False, bounds=False)
COUNTS: Final = MetricsMode(bounds=False)
FULL: Final = MetricsMode()
TRUNCATED: Final = MetricsMode(length=16)
"""Iceberg's default, `truncate(16)`."""
_MODES: Final = {"none": NONE, "counts": COUNTS, "full": FULL}


def metrics_modes(
    fields: Sequence[Mapping[str, Any]], properties: Mapping[str, str], sorted_ids: Collection[int] = ()
) -> dict[int, MetricsMode]:
    """Return the mode of each column and each part of a nested column, by field id.

    Args:
        fields: The fields of the schema in Iceberg's JSON.
        properties: The table's properties.
        sorted_ids: The ids of columns that have bounds unless the properties name the column: those of the sort order
            and of the key. Without bounds of the key, every equality delete applies to every file.
    """
    names = dict(_named("", fields))
    default = _parsed(_DEFAULT, properties.get(_DEFAULT))
    if default is not None:
        modes = dict.fromkeys(names, default)
    else:
        limit = _limit(properties)
        first = list(_breadth_first(fields))[: max(0, limit)]
        default = TRUNCATED if len(fields) <= limit else NONE
        modes = {**dict.fromkeys(names, default), **dict.fromkeys(first, TRUNCATED)}
    for number in sorted_ids:
        modes[number] = default if default.bounds else TRUNCATED
    for number, name in names.items():
        mode = _parsed(_COLUMN + name, properties.get(_COLUMN + name))
        if mode is not None:
            modes[number] = mode
    return modes


def _parsed(key: str, text: str | None) -> MetricsMode | None:
    """Return the mode that a property names; None if it is not set, or is not a mode."""
    if text is None:
        return None
    lower = text.lower()
    match = _TRUNCATE.fullmatch(lower)
    if lower in _MODES:
        return _MODES[lower]
    if match is not None and int(match[1]) > 0:
        return MetricsMode(length=int(match[1]))
    logger.warning("ignoring %s=%s: expected none, counts, truncate(length) or full", key, text)
    return None


def _limit(properties: Mapping[str, str]) -> int:
    text = properties.get(_MAX_INFERRED)
    if text is None:
        return _MAX_INFERRED_DEFAULT
    try:
        return int(text)
    except ValueError:
        logger.warning("ignoring %s=%s: expected a number", _MAX_INFERRED, text)
        return _MAX_INFERRED_DEFAULT


def _named(prefix: str, fields: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, str]]:
    """Yield the id and the full name of each field and of each of its parts."""
    for field in fields:
        name = prefix + field["name"]
        yield field["id"], name
        yield from _named(f"{name}.", _parts(field["type"]))


def _breadth_first(fields: Sequence[Mapping[str, Any]]) -> Iterator[int]:
    """Yield the ids of plain columns, on each level before those of nested columns."""
    for field in fields:
        if isinstance(field["type"], str):
            yield field["id"]
    for field in fields:
        yield from _breadth_first(_parts(field["type"]))


def _parts(kind: IcebergType) -> Sequence[Mapping[str, Any]]:
    if isinstance(kind, str):
        return ()
    match kind["type"]:
        case "struct":
            fields: Sequence[Mapping[str, Any]] = kind["fields"]
            return fields
        case "list":
            return ({"id": kind["element-id"], "name": "element", "type": kind["element"]},)
        case _:
            return (
                {"id": kind["key-id"], "name": "key", "type": kind["key"]},
                {"id": kind["value-id"], "name": "value", "type": kind["value"]},
            )
