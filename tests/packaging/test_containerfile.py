"""The container file, as far as it can be judged without a container engine. `test_sandbox.py` tries its sandbox."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
KNOWN = {"ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "RUN", "USER", "VOLUME"}
MADE = {"dist/fluss_tiering-*.whl"}
"""What `make dist` makes."""


class Instruction(NamedTuple):
    name: str
    text: str


@pytest.fixture(scope="module")
def instructions() -> list[Instruction]:
    """The instructions of the file, each on a line."""
    lines = (ROOT / "docs" / "deploy" / "Containerfile").read_text().splitlines()
    text = "\n".join(line for line in lines if not line.startswith("#")).replace("\\\n", " ")
    found = [line.split(maxsplit=1) for line in text.splitlines() if line.strip()]
    return [Instruction(name, " ".join(rest.split())) for name, rest in found]


@pytest.fixture(scope="module")
def image(instructions) -> dict[str, list[str]]:
    """The instructions of the last stage, which is the image, by their names."""
    start = max(number for number, each in enumerate(instructions) if each.name == "FROM")
    return {name: [each.text for each in instructions[start:] if each.name == name] for name in KNOWN}


def test_instructions_are_known(instructions):
    assert {each.name for each in instructions} == KNOWN


def test_what_is_copied_is_in_the_repository(instructions):
    sources = [source for each in instructions if each.name == "COPY" for source in each.text.split()[:-1]]
    from_clone = {source for source in sources if not source.startswith(("-", "/"))} - MADE
    assert from_clone == {"requirements/server.txt"}
    assert all((ROOT / source).exists() for source in from_clone)


def test_pip_installs_nothing_without_a_hash(instructions):
    commands = [each for line in instructions if line.name == "RUN" for each in line.text.split("&&")]
    installs = [each for each in commands if " install " in each and "pip" in each]
    assert len(installs) == 2
    # The second one has no index to take anything from.
    assert all("--require-hashes" in each or {"--no-index", "--no-deps"} <= set(each.split()) for each in installs)


def test_the_image_is_not_roots(image):
    (user,) = image["USER"]
    assert user.isdigit()
    assert int(user) > 0
    assert f"--uid {user} " in image["RUN"][0]


def test_all_that_the_server_writes_is_in_the_volume(image):
    (volume,) = image["VOLUME"]
    command = json.loads(image["CMD"][0])
    assert command[command.index("--data-dir") + 1].startswith(f"{volume}/")
    (cache,) = re.findall(r"NUMBA_CACHE_DIR=(\S+)", " ".join(image["ENV"]))
    assert cache.startswith(f"{volume}/")


def test_the_health_check_and_the_command_exist(image):
    reference = (ROOT / "docs" / "reference" / "cli.md").read_text()
    (check,) = image["HEALTHCHECK"]
    program, command = json.loads(check.partition("CMD ")[2])
    assert json.loads(image["ENTRYPOINT"][0]) == [program] == ["fluss-tiering"]
    assert f"\n## {command}\n" in reference
    assert f"\n## {json.loads(image['CMD'][0])[0]}\n" in reference
