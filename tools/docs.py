"""Fills in what the documentation takes from the code (`make docs`); with --check, says whether it is current.

docs/behaviour.md: which tests show each row. docs/configuration.md: every setting and option.
"""

from __future__ import annotations

import sys
from pathlib import Path

from behaviour import fill_in
from configuration import page

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    """Writes or checks the pages; 1 when a check fails."""
    check = "--check" in sys.argv[1:]
    behaviour = ROOT / "docs" / "behaviour.md"
    pages = {behaviour: fill_in(behaviour.read_text(), ROOT), ROOT / "docs" / "configuration.md": page()}
    stale = [path for path, text in pages.items() if not path.exists() or path.read_text() != text]
    for path in stale:
        if not check:
            path.write_text(pages[path])
        print(f"{path.relative_to(ROOT)}: {'is not what the code says; run `make docs`' if check else 'written'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
