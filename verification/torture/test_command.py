"""The command `make torture` says by itself what its options may name."""

from __future__ import annotations

import sys

import pytest

from torture.__main__ import main
from torture.defects import DEFECTS
from torture.makers.cases import CASES
from torture.world import PARTS


def test_the_help_lists_each_name_with_a_sentence(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["torture", "--help"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    for name in (*CASES, *PARTS, *DEFECTS):
        (line,) = [each for each in lines if each.startswith(f"  {name}  ")]
        assert line.endswith(".")
