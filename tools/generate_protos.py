"""Generate the Python stubs of `protos/` into `engine/fluss_tiering/api/` (`make protos`).

The stubs refuse a protobuf and a grpcio that are older than the compiler that made them. So the compiler is the oldest
one of the range that `pyproject.toml` allows. Newer ones would also shut out neighbours in an Airflow.

protoc names modules after the paths of the proto files (`fluss_tiering/v1/...`), but the stubs are in
`fluss_tiering.api.v1`. The imports between the stubs are therefore rewritten. With `--check` the program writes nothing
and fails if the stubs differ.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
COMPILER: Final = "grpcio-tools==1.66.2"
"""It makes stubs for protobuf 5.27.2 and grpcio 1.66.2."""
API = ROOT / "engine" / "fluss_tiering" / "api"
PACKAGES: Final = {
    "v1": '"""Generated gRPC stubs; see `protos/`."""\n',
    # These are messages without services, because Fluss has its own frames.
    "fluss/v1": '"""Generated messages of Fluss\'s own protocol; see `protos/`."""\n',
}


def isolated() -> list[str]:
    """Return how to start Python with the compiler, which needs an older protobuf than this environment has."""
    uv = str(Path(sys.executable).with_name("uv"))
    own = ["--no-project", "--isolated", "--python", sys.executable]
    return [uv, "run", "--quiet", *own, "--with", COMPILER, "python"]


def generate(into: Path, package: str) -> dict[str, str]:
    """Run protoc for a package in a scratch folder, and return the text of each file with rewritten imports."""
    files = sorted(str(p.relative_to(PROTOS)) for p in PROTOS.glob(f"fluss_tiering/{package}/*.proto"))
    arguments = [f"-I{PROTOS}", f"--python_out={into}", f"--mypy_out=quiet:{into}"]
    if package == "v1":
        arguments += [f"--grpc_python_out={into}", f"--mypy_grpc_out=quiet:{into}"]
    if subprocess.run([*isolated(), "-m", "grpc_tools.protoc", *arguments, *files], check=False).returncode != 0:
        sys.exit("error: protoc failed; its output above says why")
    texts = {"__init__.py": PACKAGES[package]}
    name = package.replace("/", r"\.")
    for path in sorted((into / "fluss_tiering" / package).iterdir()):
        text = re.sub(rf"\bfluss_tiering\.({name})\b(?=[ .]\w+_pb2)", r"fluss_tiering.api.\1", path.read_text())
        texts[path.name] = re.sub(rf"from fluss_tiering\.({name}) import", r"from fluss_tiering.api.\1 import", text)
    return texts


def write(target: Path, texts: Mapping[str, str]) -> None:
    """Write these files to a folder and remove all others from it."""
    target.mkdir(parents=True, exist_ok=True)
    for old in target.iterdir():
        if old.is_file():
            old.unlink()
    for name, text in texts.items():
        (target / name).write_text(text)


def is_stale(path: Path, text: str) -> bool:
    """Return whether the file is missing or has another text."""
    return not path.exists() or path.read_text() != text


def main() -> None:
    """Write the stubs, or compare them with the present ones if --check is given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if the stubs differ from the protos")
    check = parser.parse_args().check
    if subprocess.run([*isolated(), "-c", "import grpc_tools"], check=False).returncode != 0:
        if not check:
            sys.exit(f"error: {COMPILER} cannot be had: see above")
        sys.stderr.write(f"The stubs are not compared with the protos, since {COMPILER} cannot be had.\n")
        return
    for package in PACKAGES:
        with tempfile.TemporaryDirectory() as scratch:
            texts = generate(Path(scratch), package)
        if not check:
            write(API / package, texts)
        elif stale := [name for name, text in texts.items() if is_stale(API / package / name, text)]:
            sys.exit(f"error: these stubs are out of date: {', '.join(stale)}; run `make protos`")


if __name__ == "__main__":
    main()
