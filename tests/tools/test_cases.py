"""One test tries all of its cases, and tells of each one that fails."""

from __future__ import annotations

import pytest

from cases import cases


def test_every_case_is_tried_with_the_fixtures_of_the_test(tmp_path):
    tried = []

    @cases("first", [1, 2])
    @cases(("second", "third"), [("a", "b"), ("c", "d")])
    def test_it(tmp_path, first, second, third):
        tried.append((tmp_path, first, second, third))

    test_it(tmp_path=tmp_path)
    assert [each[1:] for each in tried] == [(1, "a", "b"), (1, "c", "d"), (2, "a", "b"), (2, "c", "d")]
    assert {each[0] for each in tried} == {tmp_path}


def test_each_case_that_fails_is_told():
    @cases("number", range(4))
    def test_it(number):
        if number == 3:
            pytest.fail("three")
        assert number != 1

    with pytest.raises(BaseExceptionGroup, match="2 of 4 cases failed") as failed:
        test_it()
    assert [each.__notes__ for each in failed.value.exceptions] == [
        ["the case: {'number': 1}"],
        ["the case: {'number': 3}"],
    ]
