import pyarrow as pa
import pytest
from row_of_all_types import table_columns

from cases import cases
from fluss_tiering.formats.schema import Projection, arrow_schema, no_columns
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableDescriptor, TableInfo, TablePath

COLUMNS = table_columns("INT NOT NULL", "STRING", "ARRAY<INT>")
TABLE = TableInfo(1, TablePath("shop", "orders"), 1, TableDescriptor(COLUMNS), 0)
ROWS = pa.record_batch([[1, 2], ["a", None], [[1], []]], schema=arrow_schema(COLUMNS))


@cases(
    ("names", "included"),
    [
        (None, None),
        (["c0", "c1", "c2"], None),
        (["c2", "c0", "c1"], None),
        (["c2", "c0"], (0, 2)),
        (["c1"], (1,)),
        ([], ()),
    ],
)
def test_columns_are_had_in_the_order_that_they_are_asked_for(
    names: list[str] | None, included: tuple[int, ...] | None
) -> None:
    projection = Projection.of(TABLE, names)
    assert projection.included == included
    read = ROWS if included is None else ROWS.select(list(included))
    arranged = projection.arrange(read)
    assert arranged.equals(ROWS if names is None else ROWS.select(names))
    assert arranged.schema == projection.schema
    assert arranged.num_rows == 2


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["c0", "C1"], "table shop.orders has no column 'C1': expected some of c0, c1, c2"),
        (["c0", "c1", "c0"], "column 'c0' of table shop.orders is asked for twice: expected it once"),
    ],
)
def test_columns_that_are_not_there_once_are_refused(names: list[str], message: str) -> None:
    with pytest.raises(FlussTieringError) as caught:
        Projection.of(TABLE, names)
    assert (caught.value.code, caught.value.message) == (ErrorCode.INVALID_REQUEST, message)


def test_rows_without_columns_are_counted() -> None:
    assert [(part.num_rows, part.num_columns) for part in (no_columns(5), no_columns(5).slice(1, 3))] == [
        (5, 0),
        (3, 0),
    ]
