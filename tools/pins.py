"""Read files of pinned requirements, as `uv pip compile` writes them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_NEEDED_BY = "# via "


@dataclass(frozen=True)
class Pin:
    """One version of a distribution.

    Attributes:
        name: The canonical name.
        version: The version.
        marker: Where it is installed, as PEP 508 writes it; empty for everywhere.
        hashes: The SHA-256 of each of its files, in hexadecimal.
        needed_by: The canonical names of the distributions that require it, if the file tells them.
    """

    name: str
    version: str
    marker: str
    hashes: tuple[str, ...]
    needed_by: tuple[str, ...]


def read_pins(file: Path) -> list[Pin]:
    """Return the pins of a file, in its order. A name has several if other Pythons or platforms need other versions.

    Raises:
        ValueError: A line is not a pin.
    """
    return [_pin(block, file) for block in _blocks(file.read_text())]


def _blocks(text: str) -> Iterator[list[str]]:
    """Yield the lines of each requirement: the first one, and those below it that are indented."""
    block: list[str] = []
    for line in text.splitlines():
        if line.startswith("#") or not line.strip():
            continue
        if not line.startswith(" ") and block:
            yield block
            block = []
        block.append(line)
    if block:
        yield block


def _pin(lines: list[str], file: Path) -> Pin:
    requirement = Requirement(lines[0].rstrip(" \\"))
    versions = [each.version for each in requirement.specifier if each.operator == "=="]
    if len(versions) != 1 or len(requirement.specifier) != 1:
        raise ValueError(f"{file}: {lines[0]!r} is not a pin: expected NAME==VERSION; run `make constraints`")
    below = [line.strip() for line in lines[1:]]
    # uv names the project's own packages with the file that defines them: `fluss-tiering (engine/pyproject.toml)`.
    needed_by = {
        canonicalize_name(name.split()[0])
        for line in below
        if line.startswith(_NEEDED_BY)
        for name in line.removeprefix(_NEEDED_BY).split(",")
    }
    return Pin(
        name=canonicalize_name(requirement.name),
        version=versions[0],
        marker=str(requirement.marker or ""),
        hashes=tuple(_HASH.findall(" ".join(below))),
        needed_by=tuple(sorted(needed_by)),
    )
