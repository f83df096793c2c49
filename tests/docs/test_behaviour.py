"""Every promise of `docs/behaviour.md` is shown by a test that names its number."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NUMBER = r"[LSK]\d{1,2}"


def promised() -> list[str]:
    return re.findall(rf"^\| ({NUMBER}) \|", (ROOT / "docs" / "behaviour.md").read_text(), re.MULTILINE)


def shown() -> set[str]:
    comments = (
        comment
        for path in (ROOT / "tests").rglob("test_*.py")
        if path != Path(__file__).resolve()
        for comment in re.findall(r"#(.*)$", path.read_text(), re.MULTILINE)
    )
    return {number for comment in comments for number in re.findall(rf"\b{NUMBER}\b", comment)}


def test_numbers_are_promised_once() -> None:
    assert len(promised()) == len(set(promised())) > 30


def test_every_promise_is_shown_by_a_test() -> None:
    assert not sorted(set(promised()) - shown())
