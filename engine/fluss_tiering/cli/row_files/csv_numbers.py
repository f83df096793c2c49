"""Find numbers in a CSV file that the column's guessed type, a DOUBLE, would change in silence."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from fluss_tiering.lake.names import quoted
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

_MANY_DIGITS: Final = r"([0-9]\.?){16}"
"""A DOUBLE keeps every number of up to 15 digits (IEEE 754, binary64)."""
_DIGITS_OF_DOUBLES: Final = 17
"""With so many digits, each DOUBLE has a text of its own."""
_MAX_PRECISION: Final = 38


def check_doubles(path: Path, texts: pa.RecordBatch) -> None:
    """Refuse columns of which a DOUBLE would not keep all digits, such as large amounts of money and long numbers.

    Texts that another program has made of a DOUBLE may have many digits, too. They are not refused.

    Args:
        path: The CSV file.
        texts: The columns that would become a DOUBLE, as text.

    Raises:
        FlussTieringError: INVALID_REQUEST for the first such column, with the type that keeps its digits.
    """
    for name, column in zip(texts.schema.names, texts.columns, strict=True):
        for text in column.filter(pc.match_substring_regex(column, _MANY_DIGITS)).to_pylist():
            if not _is_kept(text):
                exact = _exact_type(column)
                raise FlussTieringError(
                    ErrorCode.INVALID_REQUEST,
                    f"{path}: the column {name!r} looks like a DOUBLE, which does not keep the digits of "
                    f"{text.strip()}: expected --column '{_for_option(name)} {exact}' beside --like to keep them, "
                    f"or --column '{_for_option(name)} DOUBLE' for the nearest numbers",
                )


def _is_kept(text: str) -> bool:
    number, written = float(text), Decimal(text.strip())
    digits = max(_DIGITS_OF_DOUBLES, len(written.as_tuple().digits))
    return written in (Decimal(repr(number)), Decimal(f"{number:.{digits}g}"))


def _exact_type(column: pa.Array) -> str:
    """Return the smallest DECIMAL for all numbers of a column, STRING if there is none."""
    whole = scale = 0
    for text in column.drop_null().to_pylist():
        number = Decimal(text.strip())
        if not number.is_finite():
            return "STRING"
        whole, scale = max(whole, number.adjusted() + 1), max(scale, -int(number.as_tuple().exponent))
    return f"DECIMAL({whole + scale}, {scale})" if whole + scale <= _MAX_PRECISION else "STRING"


def _for_option(name: str) -> str:
    plain = not any(each.isspace() or each == "`" for each in name)
    return name if plain else quoted(name)
