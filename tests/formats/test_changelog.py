import numpy as np
import pyarrow as pa
import pytest
from arrow_strategies import columns, record_batches
from hypothesis import given, settings
from hypothesis import strategies as st

from fluss_tiering.formats import grouping
from fluss_tiering.formats.grouping import last_per_key
from fluss_tiering.formats.keys import encode_keys
from fluss_tiering.formats.log.batch import ChangeType

INSERT, BEFORE, AFTER, DELETE = ChangeType.INSERT, ChangeType.UPDATE_BEFORE, ChangeType.UPDATE_AFTER, ChangeType.DELETE


def change_types(*kinds: ChangeType) -> np.ndarray:
    return np.array(kinds, np.uint8)


def test_the_last_change_of_each_key_is_found_in_log_order() -> None:
    records = pa.table({"v": [10, 10, 11, 20, 20, 11, 30], "k": ["a", "a", "a", "b", "b", "a", "c"]})
    kinds = change_types(INSERT, BEFORE, AFTER, INSERT, DELETE, DELETE, INSERT)
    last = last_per_key(records, ["k"], kinds)
    assert last.dtype == np.int64
    assert last.tolist() == [4, 5, 6]


@pytest.mark.parametrize("few", [0, 1 << 16])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_run_of_changes_is_reduced_as_one_by_one(few: int, data: st.DataObject) -> None:
    key_columns = data.draw(columns(3, nullable=False))
    few_keys = data.draw(record_batches(key_columns, max_rows=4))
    if few_keys.num_rows == 0:
        return
    picked = data.draw(st.lists(st.integers(0, few_keys.num_rows - 1), max_size=20))
    kinds = data.draw(
        st.lists(st.sampled_from([INSERT, BEFORE, AFTER, DELETE]), min_size=len(picked), max_size=len(picked))
    )
    records = pa.Table.from_batches([few_keys]).take(pa.array(picked, pa.int64()))
    last: dict[bytes, int] = {}
    for index, (key, kind) in enumerate(zip(encode_keys(records, key_columns).to_pylist(), kinds, strict=True)):
        if kind is not BEFORE:
            last[key] = index
    names = [column.name for column in key_columns]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grouping, "_FEW", few)
        assert last_per_key(records, names, change_types(*kinds)).tolist() == sorted(last.values())


@pytest.mark.parametrize("pieces", [1, 7])
def test_records_may_come_in_pieces(pieces: int) -> None:
    keys = np.arange(1000) % 100
    whole = pa.table({"k": keys})
    size = -(-1000 // pieces)
    records = pa.concat_tables([whole.slice(start, size) for start in range(0, 1000, size)])
    kinds = np.where(np.arange(1000) % 2 == 0, np.uint8(BEFORE), np.uint8(AFTER))
    assert last_per_key(records, ["k"], kinds).tolist() == list(range(901, 1000, 2))
