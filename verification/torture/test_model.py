"""The model of a table knows which rows must be there, and which may be."""

from __future__ import annotations

import pytest

from fluss_tiering.model.table import WriteKind
from torture.model import TableModel
from torture.plan import PlannedTable

LOG = PlannedTable("log", [["id", "BIGINT"], ["name", "STRING"]])
KEYED = PlannedTable("keyed", [["id", "BIGINT NOT NULL"], ["name", "STRING"]], ["id"], "id")


def test_rows_in_doubt_may_be_there_or_not():
    model = TableModel(LOG)
    model.written(WriteKind.APPEND, [(1, "a"), (1, "a")])
    model.appended_in_doubt([(2, "b"), (2, "b"), (3, "c")])
    assert model.pending == 5
    model.tiered()
    assert model.has_doubts
    assert model.settle([(1, "a"), (1, "a"), (2, "b")]) == 1
    assert sorted(model.lake_rows()) == [(1, "a"), (1, "a"), (2, "b")]
    assert not model.has_doubts


def test_a_row_that_nobody_wrote_is_not_taken_for_one_in_doubt():
    model = TableModel(LOG)
    model.appended_in_doubt([(1, "a")])
    model.tiered()
    model.settle([(2, "b")])
    assert model.lake_rows() == []


@pytest.mark.parametrize(
    ("kind", "found", "wrong"),
    [
        (WriteKind.UPSERT, [(1, "old")], []),
        (WriteKind.UPSERT, [(1, "first"), (2, "new")], []),
        (WriteKind.UPSERT, [(1, "last")], []),
        (WriteKind.UPSERT, [], [1]),
        (WriteKind.UPSERT, [(1, "other")], [1]),
        (WriteKind.DELETE, [], []),
        (WriteKind.DELETE, [(1, "old")], []),
        (WriteKind.DELETE, [(1, "first")], [1]),
    ],
)
def test_a_broken_change_leaves_the_row_before_or_one_of_its_own(kind, found, wrong):
    model = TableModel(KEYED)
    model.written(WriteKind.UPSERT, [(1, "old")])
    model.tiered()
    rows = [(1, "first"), (1, "last"), (2, "new")]
    assert [key for (key,) in model.changed_in_doubt(kind, rows, found)] == wrong
    if not wrong:
        assert sorted(model.stored_rows()) == sorted(found)
        model.tiered()
        assert sorted(model.lake_rows()) == sorted(found)


def test_what_a_user_deletes_from_the_lake_stays_in_the_table():
    model = TableModel(KEYED)
    model.written(WriteKind.UPSERT, [(1, "a"), (2, "a"), (3, "b")])
    model.tiered()
    model.deleted_in_lake(lambda row: row[1] == "a")
    assert model.lake_rows() == [(3, "b")]
    assert len(model.stored_rows()) == 3
    model.written(WriteKind.UPSERT, [(1, "a")])
    model.tiered()
    assert sorted(model.lake_rows()) == [(1, "a"), (3, "b")]


def test_rows_that_a_round_writes_beside_a_delete_may_be_deleted():
    model = TableModel(KEYED)
    model.written(WriteKind.UPSERT, [(1, "a"), (2, "a")])
    model.tiered()
    model.written(WriteKind.UPSERT, [(1, "b"), (3, "a"), (4, "a")])
    model.deleted_in_lake(lambda row: row[1] == "a", beside_round=True)
    model.tiered()
    assert model.lake_rows() == [(1, "b")]
    assert model.settle([(1, "b"), (4, "a")]) == 1
    assert sorted(model.lake_rows()) == [(1, "b"), (4, "a")]
    # A later change of a row that was in doubt is in no doubt.
    model.written(WriteKind.UPSERT, [(3, "c")])
    model.tiered()
    assert sorted(model.lake_rows()) == [(1, "b"), (3, "c"), (4, "a")]


def test_rows_follow_their_columns():
    model = TableModel(KEYED)
    model.written(WriteKind.UPSERT, [(1, "a"), (2, "b")])
    model.tiered()
    model.written(WriteKind.UPSERT, [(2, "c")])
    model.written(WriteKind.DELETE, [(1, None)])
    columns = [["name", "STRING"], ["new", "INT"], ["id", "BIGINT NOT NULL"]]
    model.altered(PlannedTable("keyed", columns, ["id"], "id"), [1, None, 0])
    assert model.stored_rows() == [("c", None, 2)]
    model.written(WriteKind.UPSERT, [("d", 7, 2)])
    model.tiered()
    assert model.lake_rows() == model.stored_rows() == [("d", 7, 2)]
