"""The container files, as far as they can be judged without a container engine. `test_sandbox.py` tries the sandbox."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from fluss_tiering.server.settings.server_settings import load_settings, unknown_variables
from fluss_tiering.spark.versions import spark_version

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "docs" / "deploy"
KNOWN = {"ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "RUN", "USER", "VOLUME", "WORKDIR"}
MADE = {"dist/fluss_tiering-*.whl", ".cache/jars/iceberg-spark-runtime-*.jar"}
"""What `make setup dist` makes."""


class Instruction(NamedTuple):
    name: str
    text: str


def instructions_of(name: str) -> list[Instruction]:
    """The instructions of a file, each on a line."""
    lines = (DEPLOY / name).read_text().splitlines()
    text = "\n".join(line for line in lines if not line.startswith("#")).replace("\\\n", " ")
    found = [line.split(maxsplit=1) for line in text.splitlines() if line.strip()]
    return [Instruction(name, " ".join(rest.split())) for name, rest in found]


def last_stage(instructions: list[Instruction]) -> dict[str, list[str]]:
    """The instructions of the last stage, which is the image, by their names."""
    start = max(number for number, each in enumerate(instructions) if each.name == "FROM")
    return {name: [each.text for each in instructions[start:] if each.name == name] for name in KNOWN}


@pytest.fixture(scope="module")
def image() -> dict[str, list[str]]:
    return last_stage(instructions_of("Containerfile"))


@pytest.mark.parametrize(
    ("file", "requirements", "user"),
    [("Containerfile", "server.txt", "10001"), ("Containerfile.spark", "spark.txt", "185")],
)
def test_an_image_is_made_of_what_is_there_by_a_user_who_is_not_root(file, requirements, user):
    instructions = instructions_of(file)
    assert {each.name for each in instructions} <= KNOWN
    sources = [source for each in instructions if each.name == "COPY" for source in each.text.split()[:-1]]
    from_clone = {source for source in sources if not source.startswith(("-", "/"))} - MADE
    assert from_clone == {f"requirements/{requirements}"}
    assert all((ROOT / source).exists() for source in from_clone)
    commands = [each for line in instructions if line.name == "RUN" for each in line.text.split("&&")]
    installs = [each for each in commands if " install " in each and "pip" in each]
    assert len(installs) == 2
    # The second one has no index to take anything from.
    assert all("--require-hashes" in each or {"--no-index", "--no-deps"} <= set(each.split()) for each in installs)
    image = last_stage(instructions)
    # A number, so that Kubernetes sees that it is not root.
    assert image["USER"] == [user]
    assert f"--uid {user} " in image["RUN"][0]


def test_spark_is_of_the_version_whose_iceberg_is_fetched():
    (base,) = re.findall(
        r"^ARG SPARK=\S+/spark:(\d+\.\d+)\.", (DEPLOY / "Containerfile.spark").read_text(), re.MULTILINE
    )
    assert base == spark_version()


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


def test_servers_of_the_compose_file_start_and_are_open_to_this_machine_only(monkeypatch):
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    servers = {name: each for name, each in services.items() if "build" in each}
    assert servers.keys() == {"tiering", "tiering-1", "tiering-2"}
    for name, server in servers.items():
        given = {key: value for key, value in server["environment"].items() if value is not None}
        assert not unknown_variables(server["environment"])
        with monkeypatch.context() as patched:
            for each in given.items():
                patched.setenv(*each)
            # As the image starts it.
            assert bool(load_settings(host="0.0.0.0").store_url) == (name != "tiering")
    assert all(port.startswith("127.0.0.1:") for each in services.values() for port in each.get("ports", []))
