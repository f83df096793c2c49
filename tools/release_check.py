"""Check the packages in `dist/` before they are released. `make release-check` builds them and runs this.

A wheel is built from its source archive alone, without the network, and must be the wheel in `dist/`. The metadata must
be complete, the README must render, the version must be in both changelogs, and the licence of each component must be
known.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import airflow_provider_fluss
import fluss_tiering

ROOT: Final = Path(__file__).resolve().parent.parent
DIST: Final = ROOT / "dist"
_PACKAGES: Final = {
    "airflow_provider_fluss": (airflow_provider_fluss.__version__, ROOT / "airflow_provider_fluss" / "CHANGELOG.md"),
    "fluss_tiering": (fluss_tiering.__version__, ROOT / "CHANGELOG.md"),
}
_TWINE: Final = "twine==7.0.0"
_UV: Final = str(Path(sys.prefix, "bin", "uv"))
_TIMEOUT_S: Final = 600


def problems(tag: str | None) -> Iterator[str]:
    """Yield what is wrong, in one line each.

    Args:
        tag: The tag of the release, `v` and the version; None before there is one.
    """
    for package, (version, changelog) in _PACKAGES.items():
        yield from _version_problems(package, version, changelog.read_text(), tag)
        yield from _wheel_problems(package, version)
    files = [str(path) for path in sorted(DIST.iterdir()) if path.suffix in (".whl", ".gz")]
    checked = _run("tool", "run", "--from", _TWINE, "twine", "check", "--strict", *files)
    if checked.returncode:
        yield f"twine refuses the metadata or the README:\n{checked.stdout}{checked.stderr}"
    yield from _licence_problems()


def _version_problems(package: str, version: str, changelog: str, tag: str | None) -> Iterator[str]:
    heading = re.search(rf"^## {re.escape(version)} \((.+)\)$", changelog, re.MULTILINE)
    if heading is None:
        yield f"the changelog of {package} has no heading `## {version} (date)`"
    elif tag is not None and not re.fullmatch(r"\d{4}-\d\d-\d\d", heading[1]):
        yield f"the changelog of {package} says that {version} is {heading[1]}: write the date of the release"
    if tag not in (None, f"v{version}"):
        yield f"the tag is {tag}, but the version of {package} is {version}"


def _wheel_problems(package: str, version: str) -> Iterator[str]:
    wheel, archive = DIST / f"{package}-{version}-py3-none-any.whl", DIST / f"{package}-{version}.tar.gz"
    with tempfile.TemporaryDirectory() as scratch:
        built = _run("build", "--offline", "--wheel", "--out-dir", scratch, str(archive))
        if built.returncode:
            yield f"no wheel can be built from {archive.name} without the network:\n{built.stderr}"
        elif Path(scratch, wheel.name).read_bytes() != wheel.read_bytes():
            yield f"the wheel that is built from {archive.name} is not {wheel.name}"


def _licence_problems() -> Iterator[str]:
    document = DIST / f"fluss-tiering-{fluss_tiering.__version__}.cdx.json"
    for each in json.loads(document.read_text())["components"]:
        is_for_others = any(known["name"].endswith(":marker") for known in each.get("properties", []))
        if not each.get("licenses") and not is_for_others:
            yield f"the licence of {each['name']} {each['version']} is not known"


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([_UV, *arguments], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)


def main() -> None:
    """Print what is wrong and end with 1, or print what can be released."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tag", help="the tag of the release, such as v0.1.0, which demands a date in the changelogs")
    found = list(problems(parser.parse_args().tag))
    if found:
        sys.exit("\n".join(f"error: {each}" for each in found))
    print("Ready to be released:", *sorted(path.name for path in DIST.iterdir()))


if __name__ == "__main__":
    main()
