"""docs/reference/compatibility.md begins with what its generator says."""

from __future__ import annotations

from matrix.__main__ import _INTRODUCTION, PAGE


def test_the_page_has_the_introduction_of_its_generator() -> None:
    assert PAGE.read_text().startswith(_INTRODUCTION), "change both: `make test-matrix ARGS=--keep` writes the page"
