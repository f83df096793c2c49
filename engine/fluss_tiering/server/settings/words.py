"""What an error about a setting says was expected. Pydantic's own words name its types and functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, get_args

from pydantic.fields import FieldInfo

from fluss_tiering.model.units import duration_text, memory_size_text
from fluss_tiering.server.settings.types import READS_DURATIONS, READS_SIZES

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
        least_text = "above 0" if least == 1 else f"of at least {duration_text(least)}"
        return f"a duration {least_text}" + ("" if most is None else f" and of at most {duration_text(most)}")
    if most is not None and READS_SIZES in field.metadata:
        return f"a size above 0 and below {memory_size_text(most + 1)}"
    return f"a whole number from {least} to {most}"


def _limits(field: FieldInfo, name: str) -> list[int]:
    """Return the limits of a number that have a name of pydantic, also of a number that need not be set."""
    kinds = [each for kind in get_args(field.annotation) for each in getattr(kind, "__metadata__", ())]
    limits = [*field.metadata, *(limit for kind in kinds for limit in getattr(kind, "metadata", ()))]
    return [getattr(each, name) for each in limits if hasattr(each, name)]
