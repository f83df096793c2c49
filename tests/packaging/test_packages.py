"""What the wheels and the source archives hold (D20, D21)."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import airflow_provider_fluss
import fluss_tiering

UV = str(Path(sys.prefix, "bin", "uv"))
ENGINE = "fluss_tiering"
PROVIDER = "airflow_provider_fluss"
JAR = "fluss_tiering/spark/jars/fluss-tiering-spark.jar"
VERSIONS = {ENGINE: fluss_tiering.__version__, PROVIDER: airflow_provider_fluss.__version__}


def in_wheel(dist: Path, package: str) -> dict[str, bytes]:
    (path,) = dist.glob(f"{package}-*.whl")
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def in_source_archive(dist: Path, package: str) -> dict[str, bytes]:
    (path,) = dist.glob(f"{package}-*.tar.gz")
    with tarfile.open(path) as archive:
        files = [each for each in archive.getmembers() if each.isfile()]
        return {each.name.partition("/")[2]: archive.extractfile(each).read() for each in files}


def files_below(folder: Path, *names: str) -> set[str]:
    paths = (path for name in names for path in [folder / name, *(folder / name).rglob("*")])
    return {path.relative_to(folder).as_posix() for path in paths if path.is_file()}


def metadata(dist: Path, package: str) -> Message:
    return message_from_bytes(in_wheel(dist, package)[f"{package}-{VERSIONS[package]}.dist-info/METADATA"])


def without_dist_info(names: dict[str, bytes]) -> set[str]:
    return {name for name in names if ".dist-info/" not in name}


def test_the_engines_wheel_holds_its_modules_and_the_catalogs_jar(dist, checkout):  # D21
    wheel = in_wheel(dist, ENGINE)
    assert without_dist_info(wheel) == files_below(checkout / "engine", "fluss_tiering", "pyspark_fluss.py") | {JAR}
    with zipfile.ZipFile(io.BytesIO(wheel[JAR])) as jar:
        assert "fluss/tiering/spark/FlussCatalog.class" in jar.namelist()
        assert "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister" in jar.namelist()


def test_the_engines_source_archive_holds_what_its_wheel_is_built_from(dist, checkout):  # D21
    engine = checkout / "engine"
    expected = files_below(engine, *(path.name for path in engine.iterdir() if path.name != "__pycache__"))
    assert in_source_archive(dist, ENGINE).keys() == expected | {".gitignore", "PKG-INFO", JAR}


def test_the_providers_packages_hold_the_provider_and_its_example_dags(dist, checkout):  # E40
    provider, dags = files_below(checkout, PROVIDER), files_below(checkout, "dags")
    assert len(dags) == 5
    # Airflow looks for the example DAGs of a provider in this folder of its package.
    examples = {name.replace("dags/", f"{PROVIDER}/example_dags/") for name in dags}
    assert without_dist_info(in_wheel(dist, PROVIDER)) == provider | examples
    beside = {".gitignore", "LICENSE", "NOTICE", "PKG-INFO", "README.md", "pyproject.toml"}
    assert in_source_archive(dist, PROVIDER).keys() == provider | dags | beside


@pytest.mark.parametrize("package", [ENGINE, PROVIDER])
def test_readme_licence_and_version_are_in_the_wheel(dist, checkout, package):
    folder = checkout / "engine" if package == ENGINE else checkout
    headers = metadata(dist, package)
    assert headers["Version"] == VERSIONS[package]
    assert headers["License-Expression"] == "Apache-2.0"
    assert headers.get_payload(decode=True).decode().strip() == (folder / "README.md").read_text().strip()
    licence = in_wheel(dist, package)[f"{package}-{VERSIONS[package]}.dist-info/licenses/LICENSE"]
    assert licence == (checkout / "LICENSE").read_bytes()


def test_the_provider_requires_an_engine_that_can_tier(dist):  # D20
    requirements = [Requirement(text) for text in metadata(dist, PROVIDER).get_all("Requires-Dist")]
    engine, with_spark = [each for each in requirements if each.name == "fluss-tiering"]
    assert (engine.extras, engine.marker) == (set(), None)
    assert (with_spark.extras, str(with_spark.marker)) == ({"spark"}, 'extra == "spark"')
    for each in (engine, with_spark):
        assert each.specifier.contains(VERSIONS[ENGINE])
        assert not each.specifier.contains("0.2")


@pytest.mark.parametrize("file", ["pyproject.toml", "engine/pyproject.toml"])
def test_a_version_stands_in_one_place(checkout, file):
    project = tomllib.loads((checkout / file).read_text())["project"]
    assert project["dynamic"] == ["version"]


def build(checkout: Path, source: str, target: Path) -> subprocess.CompletedProcess[str]:
    """Build a wheel on a machine without a JDK."""
    command = [UV, "build", "--wheel", "--python", sys.executable, "--out-dir", str(target), source]
    environment = {**os.environ, "JAVA_HOME": "/nowhere"}
    return subprocess.run(
        command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=280, check=False
    )


@pytest.mark.system
def test_only_a_source_archive_is_built_without_a_compiler(dist, checkout, tmp_path):  # D21
    (archive,) = dist.glob(f"{ENGINE}-*.tar.gz")
    assert build(checkout, str(archive), tmp_path).returncode == 0
    assert in_wheel(tmp_path, ENGINE) == in_wheel(dist, ENGINE)
    (checkout / "engine" / JAR).unlink()
    answer = build(checkout, "engine", tmp_path / "none")
    assert answer.returncode != 0
    (line,) = [line for line in answer.stderr.splitlines() if "no package of fluss-tiering was built" in line]
    assert "/nowhere has no bin/javac" in line
    assert "install a JDK" in line
    assert "Traceback" not in answer.stderr
    assert not list(tmp_path.glob("none/*.whl"))
