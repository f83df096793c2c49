"""Values of both layouts that Fluss 1.0.0's own classes made (`data/FlussValueLayouts.java`)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from refusals import refused

from cases import cases
from fluss_tiering.formats.compacted.row import decode_values, encode_values
from fluss_tiering.formats.compacted.value_layout import PLAIN, TAGGED, VALUE_LAYOUTS
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.table import Column, DataType

MADE_BY_FLUSS = Path(__file__).parents[1] / "data" / "fluss-1.0.0-value-layouts.txt"
COLUMNS = (Column("id", DataType.parse("BIGINT NOT NULL")), Column("name", DataType.parse("STRING")))


def made_by_fluss(version: str) -> Iterator[tuple[int, dict[str, Any], bytes]]:
    """Yield schema id, row and stored value of each line of a layout."""
    for line in MADE_BY_FLUSS.read_text().splitlines():
        layout, schema_id, _, key, name, value = line.split("|")
        if layout == version:
            row = {"id": int(key), "name": None if name == "null" else name}
            yield int(schema_id), row, bytes.fromhex(value)


@pytest.mark.parametrize("version", sorted(VALUE_LAYOUTS))
def test_values_that_fluss_made_are_read(version: str) -> None:
    layout = VALUE_LAYOUTS[version]
    found = list(made_by_fluss(version))
    assert len(found) == 6
    for schema_id, row, value in found:
        values = pa.array([value])
        assert decode_values(values, COLUMNS, schema_id, layout=layout).to_pylist() == [row]
        assert decode_values(values, COLUMNS, schema_id, [1], layout=layout).to_pylist() == [{"name": row["name"]}]
    many = [(row, value) for schema_id, row, value in found if schema_id == 1]
    stored = pa.array([b"before", *(value for _, value in many), b"behind"]).slice(1, len(many))
    assert decode_values(stored, COLUMNS, 1, layout=layout).to_pylist() == [row for row, _ in many]


def test_plain_values_are_written_as_fluss_writes_them() -> None:
    for schema_id, row, value in made_by_fluss("1"):
        batch = pa.RecordBatch.from_pylist([row], schema=arrow_schema(COLUMNS))
        assert encode_values(batch, COLUMNS, schema_id).to_pylist() == [value]


def test_a_value_of_the_other_layout_is_refused() -> None:
    plain, tagged = (next(made_by_fluss(version))[2] for version in ("1", "2"))
    with refused(ErrorCode.CORRUPT_DATA, "the stored value 0 of 1", "another schema id than 1"):
        decode_values(pa.array([tagged]), COLUMNS, 1, layout=PLAIN)
    with refused(ErrorCode.CORRUPT_DATA, "the stored value 0 of 1"):
        decode_values(pa.array([plain]), COLUMNS, 1, layout=TAGGED)


@cases("length", range(11))
def test_a_value_that_ends_in_its_tag_or_schema_id_is_refused(length: int) -> None:
    whole = [value for _, _, value in made_by_fluss("2")][-1]
    with refused(ErrorCode.CORRUPT_DATA, "the stored value 1 of 2 is shorter than its null bits"):
        decode_values(pa.array([whole, whole[:length]]), COLUMNS, 1, layout=TAGGED)
