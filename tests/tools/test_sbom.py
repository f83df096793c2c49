"""The list of what users install, by CycloneDX's own schema, and the folder dist/ into which several commands write."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import fluss_tiering
import sbom
from cases import cases
from fetch_spark_jars import SHA256
from fluss_tiering.spark.versions import ICEBERG, packages
from pins import read_pins

ROOT = Path(__file__).resolve().parents[2]
PINS = read_pins(ROOT / "requirements" / "all.txt")


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> str:
    output = tmp_path_factory.mktemp("sbom") / "new" / "fluss.cdx.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["sbom.py", "--output", str(output)])
        sbom.main()
    return output.read_text()


@pytest.fixture(scope="module")
def components(text) -> dict[str, dict[str, Any]]:
    """The components by their package URLs."""
    return {each["purl"]: each for each in json.loads(text)["components"]}


@pytest.mark.long
def test_the_document_is_valid(text):
    # Here, since the import alone takes seconds, in each process that collects tests.
    from cyclonedx.schema import SchemaVersion  # noqa: PLC0415
    from cyclonedx.validation.json import JsonStrictValidator  # noqa: PLC0415

    validator = JsonStrictValidator(SchemaVersion.V1_6)
    assert validator.validate_str(text) is None
    assert validator.validate_str(text.replace('"SHA-256"', '"SHA-257"')) is not None


def test_each_pinned_distribution_is_listed_with_its_hashes(components):
    for pin in PINS:
        component = components[f"pkg:pypi/{pin.name}@{pin.version}"]
        (files,) = component["externalReferences"]
        assert sorted(each["content"] for each in files["hashes"]) == sorted(pin.hashes)
        told = {each["name"]: each["value"] for each in component.get("properties", [])}
        assert told.get("fluss-tiering:marker", "") == pin.marker
    jars = {f"pkg:maven/{'/'.join(each.split(':')[:2])}@{each.split(':')[2]}" for each in packages("4.1")}
    engine = f"pkg:pypi/fluss-tiering@{fluss_tiering.__version__}"
    assert set(components) == {f"pkg:pypi/{pin.name}@{pin.version}" for pin in PINS} | jars | {engine}


def test_jars_are_listed_with_their_hash(components):
    for package in packages("4.1"):
        group, artifact, version = package.split(":")
        (only,) = components[f"pkg:maven/{group}/{artifact}@{version}"]["hashes"]
        assert only == {"alg": "SHA-256", "content": SHA256[package]}


@cases(
    ("name", "licence"),
    [
        ("numpy", {"expression": "BSD-3-Clause AND 0BSD AND MIT AND Zlib AND CC0-1.0"}),
        ("sqlalchemy", {"license": {"id": "MIT"}}),
        ("mmh3", {"license": {"name": "MIT License"}}),
        ("fluss-tiering", {"license": {"id": "Apache-2.0"}}),
    ],
)
def test_licences_are_those_that_distributions_tell(components, name, licence):
    assert [licence] in [each.get("licenses") for each in components.values() if each["name"] == name]


def test_almost_every_component_has_a_licence(components):
    # Those of other Pythons are not installed here.
    without = [each for each in components.values() if not each.get("licenses")]
    assert len(without) <= len(components) // 20, [each["purl"] for each in without]


def test_dependencies_lead_from_the_provider_to_every_component(text, components):
    document = json.loads(text)
    needs = {each["ref"]: each.get("dependsOn", []) for each in document["dependencies"]}
    reached, left = set(), [document["metadata"]["component"]["bom-ref"]]
    while left:
        ref = left.pop()
        if ref not in reached:
            reached.add(ref)
            left += needs[ref]
    assert reached - set(components) == {document["metadata"]["component"]["bom-ref"]}
    assert set(components) <= reached
    for pin in PINS:
        above = {each for each, below in needs.items() if f"pkg:pypi/{pin.name}@{pin.version}" in below}
        assert {each.removeprefix("pkg:pypi/").partition("@")[0] for each in above} == set(pin.needed_by)


def test_jars_of_each_supported_spark_have_a_pinned_hash():
    assert {package for version in ICEBERG for package in packages(version)} == set(SHA256)


@pytest.mark.system
@pytest.mark.skipif(shutil.which("make") is None, reason="this machine has no make")
def test_building_the_packages_keeps_the_list_of_what_is_inside(tmp_path):
    shown = subprocess.run(["make", "--dry-run", "dist"], cwd=ROOT, capture_output=True, text=True, check=True)
    (removal,) = [line for line in shown.stdout.splitlines() if line.startswith("rm ")]
    kept = "fluss-tiering-0.1.0.cdx.json"
    (tmp_path / "dist").mkdir()
    for name in (kept, "fluss_tiering-0.1.0-py3-none-any.whl", "fluss_tiering-0.1.0.tar.gz"):
        (tmp_path / "dist" / name).touch()
    subprocess.run(["sh", "-c", removal], cwd=tmp_path, check=True)
    assert [each.name for each in (tmp_path / "dist").iterdir()] == [kept]
