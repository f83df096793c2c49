"""The pinned requirements, the workflows, and when the jar of the Spark catalog is compiled anew."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
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


WORKFLOWS = ROOT / ".github" / "workflows"


def test_commands_of_workflows_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for file in WORKFLOWS.iterdir():
        used = set(re.findall(r"(?:run:|-) make ([a-z-]+)", file.read_text()))
        assert used, file.name
        assert used <= targets, file.name


def test_jobs_run_all_tests():
    matrix = yaml.safe_load((WORKFLOWS / "tests.yml").read_text())["jobs"]["programs"]["strategy"]["matrix"]
    folders = [each for job in matrix["include"] for each in job["folders"].partition(" --ignore")[0].split()]
    tests = {f"tests/{path.relative_to(ROOT / 'tests').parts[0]}" for path in (ROOT / "tests").rglob("test_*.py")}
    assert {"/".join(each.split("/")[:2]) for each in folders} == tests


ENGINE_FOLDER = ROOT / "engine"


@pytest.fixture
def catalog_jar(tmp_path) -> SimpleNamespace:
    """The module in a copy of the sources."""
    shutil.copytree(ENGINE_FOLDER / "java", tmp_path / "java")
    shutil.copy(ENGINE_FOLDER / "catalog_jar.py", tmp_path)
    return SimpleNamespace(**runpy.run_path(str(tmp_path / "catalog_jar.py")))


def test_a_jar_is_current_if_it_is_whole_and_made_from_these_sources(catalog_jar, tmp_path):  # D21
    assert not catalog_jar.is_current()
    catalog_jar.JAR.parent.mkdir(parents=True)
    classes = tmp_path / "classes"
    classes.mkdir()
    catalog_jar._pack(classes)
    packed = catalog_jar.JAR.read_bytes()
    for changed in ("catalog_jar.py", "java/fluss/tiering/spark/FlussCatalog.java"):
        source = tmp_path / changed
        before = source.read_bytes()
        # The time of a file says nothing: an archive gives all of its files the same.
        source.touch()
        assert catalog_jar.is_current()
        source.write_bytes(before + b"\n")
        assert not catalog_jar.is_current()
        source.write_bytes(before)
    next(catalog_jar.SOURCES.rglob("*.java")).unlink()
    assert not catalog_jar.is_current()
    catalog_jar.JAR.write_bytes(packed[:-30])
    assert not catalog_jar.is_current()


def test_a_folder_without_the_jar_of_iceberg_is_named(catalog_jar, monkeypatch, tmp_path):
    spark, iceberg = tmp_path / "spark", tmp_path / "iceberg"
    for jar in (spark / "spark-sql_2.13-4.1.3.jar", iceberg / "iceberg-spark-runtime-4.1_2.13-1.12.0.jar"):
        jar.parent.mkdir()
        jar.touch()
    monkeypatch.setenv(catalog_jar.JARS_VARIABLE, str(spark))
    with pytest.raises(catalog_jar.JarError, match=r"spark has no jar of Iceberg: expected one of org\."):
        catalog_jar.build()
    monkeypatch.setenv(catalog_jar.JARS_VARIABLE, f"{spark}{os.pathsep}{iceberg}")
    assert catalog_jar.class_folders(tmp_path) == [spark, iceberg]


def test_a_folder_without_the_jars_of_spark_is_named(catalog_jar, monkeypatch, tmp_path):
    monkeypatch.setenv(catalog_jar.JARS_VARIABLE, str(tmp_path / "nothing"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(catalog_jar.JarError, match=r"nothing has no spark-sql jar: expected the folder `jars`"):
        catalog_jar.build()
