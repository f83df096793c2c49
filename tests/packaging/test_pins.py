"""The pinned requirements: those of releases have hashes, and are of the versions that the tests run with."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pins import read_pins

ROOT = Path(__file__).parents[2]
OWN = {"fluss-tiering", "airflow-provider-fluss"}
ENGINE, PROVIDER = ROOT / "engine" / "pyproject.toml", ROOT / "pyproject.toml"
FILES = ["all.txt", "server.txt", "spark.txt"]


def required(project: Path, *extras: str) -> set[str]:
    """What a package requires directly, with these extras or with all."""
    told = tomllib.loads(project.read_text())["project"]
    optional = told["optional-dependencies"]
    lists = [told["dependencies"], *(optional[extra] for extra in extras or optional)]
    return {canonicalize_name(Requirement(text).name) for each in lists for text in each} - OWN


@pytest.mark.parametrize("file", FILES)
def test_pins_of_releases_are_those_of_the_tests(file):
    tested = {(pin.name, pin.version) for pin in read_pins(ROOT / "constraints.txt")}
    released = {(pin.name, pin.version) for pin in read_pins(ROOT / "requirements" / file)}
    assert released <= tested, "run `make requirements`"


@pytest.mark.parametrize("file", FILES)
def test_each_pin_of_a_release_has_hashes(file):
    assert [pin.name for pin in read_pins(ROOT / "requirements" / file) if not pin.hashes] == []


@pytest.mark.parametrize(
    ("file", "wanted"),
    [
        ("server.txt", required(ENGINE, "rows", "server", "postgres")),
        ("spark.txt", required(ENGINE, "rows", "spark") - {"pyspark"}),
        ("all.txt", required(ENGINE) | required(PROVIDER)),
    ],
)
def test_a_release_pins_what_the_packages_require(file, wanted):
    pins = read_pins(ROOT / "requirements" / file)
    assert {pin.name for pin in pins if OWN & set(pin.needed_by)} == wanted, "run `make requirements`"
    # Everything else is there for one of them.
    names = {pin.name for pin in pins}
    assert all(pin.needed_by and set(pin.needed_by) <= names | OWN for pin in pins)


def test_pins_are_versions_that_the_packages_allow():
    pinned = read_pins(ROOT / "constraints.txt")
    for project in (ENGINE, PROVIDER):
        told = tomllib.loads(project.read_text())["project"]
        for text in sum(told["optional-dependencies"].values(), told["dependencies"]):
            requirement = Requirement(text)
            versions = [pin.version for pin in pinned if pin.name == canonicalize_name(requirement.name)]
            assert versions or requirement.name in OWN, text
            assert all(version in requirement.specifier for version in versions), text


def test_a_line_that_is_no_pin_is_refused(tmp_path):
    (tmp_path / "loose.txt").write_text("numpy>=2\n")
    with pytest.raises(ValueError, match="expected NAME==VERSION"):
        read_pins(tmp_path / "loose.txt")
