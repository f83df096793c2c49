"""Which metrics are written of which column. That Iceberg reads the properties alike is tested with its own code."""

from __future__ import annotations

from typing import Any

import pytest

from fluss_tiering.lake.iceberg.layout import schema_json
from fluss_tiering.lake.iceberg.metrics.modes import COUNTS, FULL, NONE, TRUNCATED, MetricsMode, metrics_modes
from fluss_tiering.model.table import Column, DataType, TableDescriptor

DEFAULT = "write.metadata.metrics.default"
COLUMN = "write.metadata.metrics.column."
MAX = "write.metadata.metrics.max-inferred-column-defaults"
TYPES = {"a": "INT", "s": "ROW<x STRING, y ROW<z DATE>>", "l": "ARRAY<ROW<e INT>>", "m": "MAP<STRING, ARRAY<INT>>"}
FIELDS = schema_json(TableDescriptor(tuple(Column(name, DataType.parse(kind)) for name, kind in TYPES.items())))[
    "fields"
]


def ids(fields: list[dict[str, Any]], prefix: str = "") -> dict[str, int]:
    """Return the id of each column and each part of one, by the name that properties give it."""
    found: dict[str, int] = {}
    for field in fields:
        found |= {prefix + field["name"]: field["id"], **_parts(prefix + field["name"], field["type"])}
    return found


def _parts(name: str, kind: Any) -> dict[str, int]:
    if isinstance(kind, str):
        return {}
    if kind["type"] == "struct":
        return ids(kind["fields"], f"{name}.")
    parts = ["element"] if kind["type"] == "list" else ["key", "value"]
    found = {f"{name}.{part}": kind[f"{part}-id"] for part in parts}
    return found | {key: number for part in parts for key, number in _parts(f"{name}.{part}", kind[part]).items()}


IDS = ids(FIELDS)


def modes(properties: dict[str, str], **options: Any) -> dict[str, MetricsMode]:
    found = metrics_modes(FIELDS, properties, **options)
    assert set(found) == set(IDS.values()), "each part of each column has a mode"
    return {name: found[number] for name, number in IDS.items()}


def test_by_default_bounds_are_cut_to_16_characters():
    assert modes({}) == dict.fromkeys(IDS, TRUNCATED)
    assert TRUNCATED.length == 16


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("none", NONE),
        ("Counts", COUNTS),
        ("FULL", FULL),
        ("truncate(5)", MetricsMode(length=5)),
        ("TRUNCATE(16)", TRUNCATED),
        # What is no mode counts as if it were not set.
        ("truncate(0)", TRUNCATED),
        ("truncate(-1)", TRUNCATED),
        ("truncate(x)", TRUNCATED),
        ("some", TRUNCATED),
        ("", TRUNCATED),
    ],
)
def test_the_default_is_a_property(text: str, mode: MetricsMode):
    assert modes({DEFAULT: text}) == dict.fromkeys(IDS, mode)


@pytest.mark.parametrize("name", IDS)
def test_each_part_of_a_column_can_be_named(name: str):
    expected = {**dict.fromkeys(IDS, COUNTS), name: FULL}
    assert modes({DEFAULT: "counts", COLUMN + name: "full"}) == expected
    assert modes({DEFAULT: "counts", COLUMN + name: "wrong"}) == dict.fromkeys(IDS, COUNTS)


def test_columns_of_the_key_have_bounds_unless_the_properties_name_them():
    key = {"sorted_ids": [IDS["a"]]}
    assert modes({}, **key)["a"] == TRUNCATED
    assert modes({DEFAULT: "none"}, **key) == {**dict.fromkeys(IDS, NONE), "a": TRUNCATED}
    assert modes({DEFAULT: "counts"}, **key)["a"] == TRUNCATED
    assert modes({DEFAULT: "full"}, **key)["a"] == FULL
    assert modes({DEFAULT: "none", f"{COLUMN}a": "counts"}, **key)["a"] == COUNTS


def test_of_a_wide_table_the_first_columns_have_metrics():
    wide = [{"id": number, "name": f"c{number}", "type": "int"} for number in range(1, 121)]
    found = metrics_modes(wide, {}, [120])
    assert [found[number] for number in (1, 100, 101, 119, 120)] == [TRUNCATED, TRUNCATED, NONE, NONE, TRUNCATED]
    assert set(metrics_modes(wide[:100], {}).values()) == {TRUNCATED}
    assert list(metrics_modes(wide, {MAX: "7"}).values()) == [TRUNCATED] * 7 + [NONE] * 113
    assert set(metrics_modes(wide, {MAX: "120"}).values()) == {TRUNCATED}
    assert set(metrics_modes(wide, {MAX: "-1"}).values()) == {NONE}
    assert metrics_modes(wide, {MAX: "many"}) == metrics_modes(wide, {})


def test_plain_columns_come_before_the_parts_of_nested_ones():
    in_order = ["a", "__bucket", "__offset", "__timestamp", "s.x", "s.y.z", "l.element.e"]
    assert len(FIELDS) == 7, "a table with more columns than the limit"
    for count in range(1, 7):
        found = modes({MAX: str(count)})
        assert {name for name, mode in found.items() if mode == TRUNCATED} == set(in_order[:count])
