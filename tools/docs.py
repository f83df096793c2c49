"""Fills in what the documentation takes from the code (`make docs`); with --check, says whether it is current."""

from __future__ import annotations

import sys
from pathlib import Path

import airflow_arguments
import behaviour
import command_line
import configuration
import fluss_rights
import grpc_reference
import role_reference

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "docs" / "reference"


def pages() -> dict[Path, str]:
    """Return the text of each page that is made from the code, wholly or in part."""
    promises = REFERENCE / "behaviour.md"
    return {
        REFERENCE / "airflow-arguments.md": airflow_arguments.page(),
        promises: behaviour.fill_in(promises.read_text(), ROOT),
        REFERENCE / "cli.md": command_line.page(),
        REFERENCE / "configuration.md": configuration.page(),
        REFERENCE / "fluss-rights.md": fluss_rights.page(),
        REFERENCE / "grpc-api.md": grpc_reference.page(),
        REFERENCE / "roles.md": role_reference.page(),
    }


def main() -> int:
    """Write or check the pages; return 1 if a check fails."""
    check = "--check" in sys.argv[1:]
    texts = pages()
    stale = [path for path, text in texts.items() if not path.exists() or path.read_text() != text]
    for path in stale:
        if not check:
            path.write_text(texts[path])
        print(f"{path.relative_to(ROOT)}: {'is not what the code says; run `make docs`' if check else 'written'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
