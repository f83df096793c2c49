"""The properties of lake tables that Iceberg's Java library parses, or that rounds follow, and what they may be."""

from __future__ import annotations

import re
from typing import Final

BLOOM_FILTER_ENABLED: Final = "write.parquet.bloom-filter-enabled.column."
"""With the name of a column, the property of lake tables that says whether data files have bloom filters of it."""
BLOOM_FILTER_FPP: Final = "write.parquet.bloom-filter-fpp.column."
BLOOM_FILTER_NDV: Final = "write.parquet.bloom-filter-ndv.column."
BLOOM_FILTER_MAX_BYTES: Final = "write.parquet.bloom-filter-max-bytes"
_LEAST_BLOOM_FILTER_BYTES: Final = 32
"""The size of a block, of which a filter has at least one."""
_MAX_INT: Final = 2**31 - 1
_MAX_LONG: Final = 2**63 - 1
RETRIES_OF_COMMITS: Final = "commit.retry."
"""What the names of the properties begin with that Iceberg reads before each commit, also before one that sets them."""
_NUMBERS_OF_COMMITS: Final = {
    "commit.retry.num-retries": _MAX_INT,
    "commit.retry.min-wait-ms": _MAX_INT,
    "commit.retry.max-wait-ms": _MAX_INT,
    "commit.retry.total-timeout-ms": _MAX_INT,
    "commit.status-check.num-retries": _MAX_INT,
    "commit.status-check.min-wait-ms": _MAX_LONG,
    "commit.status-check.max-wait-ms": _MAX_LONG,
    "commit.status-check.total-timeout-ms": _MAX_LONG,
    "commit.manifest.target-size-bytes": _MAX_LONG,
    "commit.manifest.min-count-to-merge": _MAX_INT,
    "write.metadata.previous-versions-max": _MAX_INT,
    "write.summary.partition-limit": _MAX_INT,
}
"""The properties that Iceberg's Java library parses in each commit, and the largest number that each may be."""


def expected_of_commits(key: str, value: str) -> str | None:
    """Return what is expected of a property of a lake table by which Iceberg's Java library commits.

    Java parses such a property in each commit, and its error names the value alone.

    Args:
        key: The property, as Iceberg names it.

    Returns:
        None if Java can parse the value, or if the property is about something else.
    """
    most = _NUMBERS_OF_COMMITS.get(key)
    # Iceberg creates no table with a negative one of these, and takes any other number.
    least = 0 if key.startswith(RETRIES_OF_COMMITS) else None
    if most is None or (
        re.fullmatch("[+-]?[0-9]{1,19}", value) and (-most - 1 if least is None else least) <= int(value) <= most
    ):
        return None
    return f"a whole number {'of at most' if least is None else 'from 0 to'} {most}"


def expected_of_bloom_filters(key: str, value: str) -> str | None:
    """Return what is expected of a property of a lake table about bloom filters.

    Args:
        key: The property, as Iceberg names it.

    Returns:
        None if the value is right, or if the property is about something else.
    """
    if key.startswith(BLOOM_FILTER_ENABLED):
        return None if value.lower() in ("true", "false") else "true or false"
    if key.startswith(BLOOM_FILTER_FPP):
        is_right = re.fullmatch(r"[0-9]*\.?[0-9]+([eE]-?[0-9]{1,3})?", value) and 0 < float(value) < 1
        return None if is_right else "a number above 0 and below 1"
    if key.startswith(BLOOM_FILTER_NDV):
        is_right = re.fullmatch("[0-9]{1,18}", value) and int(value) > 0
        return None if is_right else "a whole number of values above 0"
    if key == BLOOM_FILTER_MAX_BYTES:
        is_right = re.fullmatch("[0-9]{1,10}", value) and int(value) >= _LEAST_BLOOM_FILTER_BYTES
        return None if is_right else f"a whole number of bytes, {_LEAST_BLOOM_FILTER_BYTES} or more"
    return None
