"""Generates the Python stubs of `protos/` into `engine/fluss_tiering/api/` (`make protos`).

protoc names modules after the files' proto paths (`fluss_tiering/v1/...`); the stubs live in `fluss_tiering.api.v1`, so
the imports between them are rewritten. With `--check` nothing is written and a difference fails.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
TARGET = ROOT / "engine" / "fluss_tiering" / "api" / "v1"
HEADER = '"""Generated gRPC stubs; see `protos/`."""\n'


def generate(into: Path) -> dict[str, str]:
    """Runs protoc into a scratch folder and returns file name -> text with imports rewritten."""
    files = sorted(str(p.relative_to(PROTOS)) for p in PROTOS.glob("fluss_tiering/v1/*.proto"))
    include = str(Path(protoc.__file__).parent / "_proto")
    arguments = [
        "protoc",
        f"-I{PROTOS}",
        f"-I{include}",
        f"--python_out={into}",
        f"--grpc_python_out={into}",
        f"--mypy_out=quiet:{into}",
        f"--mypy_grpc_out=quiet:{into}",
        *files,
    ]
    if protoc.main(arguments) != 0:
        sys.exit("protoc failed; see above")
    texts = {"__init__.py": HEADER}
    for path in sorted((into / "fluss_tiering" / "v1").iterdir()):
        text = re.sub(r"\bfluss_tiering\.v1\b(?=[ .]\w+_pb2)", "fluss_tiering.api.v1", path.read_text())
        texts[path.name] = re.sub(r"from fluss_tiering\.v1 import", "from fluss_tiering.api.v1 import", text)
    return texts


def main() -> None:
    """Writes the stubs, or with --check compares them with what is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if the stubs differ from the protos")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as scratch:
        texts = generate(Path(scratch))
    if check:
        stale = [name for name, text in texts.items() if (TARGET / name).read_text() != text]
        if stale:
            sys.exit(f"stale stubs: {', '.join(stale)}; run `make protos`")
        return
    TARGET.mkdir(parents=True, exist_ok=True)
    for old in TARGET.iterdir():
        if old.is_file():
            old.unlink()
    for name, text in texts.items():
        (TARGET / name).write_text(text)


if __name__ == "__main__":
    main()
