"""docs/reference/fluss-rights.md and the guide that quotes it."""

from __future__ import annotations

import re
from pathlib import Path

from fluss_rights import page

ROOT = Path(__file__).resolve().parents[2]
STATEMENT = re.compile(r"^CALL sys\.add_acl\(.*\);$", re.MULTILINE)


def test_the_statements_of_the_guide_are_those_of_the_page() -> None:
    tiering = page().partition("### Tiering, and reading")[2].partition("###")[0]
    guide = (ROOT / "docs" / "how-to" / "connect-a-cluster.md").read_text()
    assert STATEMENT.findall(guide) == STATEMENT.findall(tiering) != []
