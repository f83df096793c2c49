"""Flink's jars are fetched as a whole, and Fluss's jars for Flink beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

import fetch_flink_jars
import fetch_fluss_jars
from fetch_fluss_jars import FlussVersion

# Does what Maven's plugin is told to do by the project: dependencies are copied, artifacts are got.
COPIES = """\
while [ "$1" != --file ]; do shift; done
folder=$(sed -n 's|.*<outputDirectory>\\(.*\\)</outputDirectory>.*|\\1|p' $2)
repository=$(dirname $2)/repository
if [ -n "$folder" ]; then mkdir -p $folder; echo f >$folder/flink-core-1.20.3.jar; fi
for artifact in $(grep -o '<artifact>[^<]*' $2 | cut -d'>' -f2); do
  group=$(echo $artifact | cut -d: -f1 | tr . /)
  name=$(echo $artifact | cut -d: -f2) version=$(echo $artifact | cut -d: -f3)
  mkdir -p $repository/$group/$name/$version
  echo j >$repository/$group/$name/$version/$name-$version.jar
done
"""
FLUSS = FlussVersion("0.1", "0.1-beta")


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(fetch_fluss_jars, "CACHE", tmp_path / "fluss")
    monkeypatch.setattr(fetch_flink_jars, "JARS", tmp_path / "flink" / "jars")
    return tmp_path / "flink" / "jars"


def maven(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    """An `mvn` that counts its calls; the file with them."""
    program = folder / "bin" / "mvn"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho called >>{folder}/calls\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return folder / "calls"


@pytest.mark.system
def test_jars_are_fetched_once(jars, tmp_path, monkeypatch):
    calls = maven(tmp_path, monkeypatch, COPIES)
    first = fetch_flink_jars.class_path(FLUSS)
    names = ["flink-core-1.20.3.jar", "fluss-flink-1.20-0.1-beta.jar", "fluss-flink-tiering-0.1-beta.jar"]
    assert [each.name for each in first[:3]] == names
    assert "fluss-lake-iceberg-0.1-beta.jar" in {each.name for each in first[3:]}
    assert all(each.exists() for each in first)
    called = calls.read_text()
    assert fetch_flink_jars.class_path(FLUSS) == first
    assert calls.read_text() == called
    # Nothing else stays: neither Maven's repository nor its project.
    assert list(jars.parent.iterdir()) == [jars]


@pytest.mark.system
def test_a_failure_leaves_no_jars(jars, tmp_path, monkeypatch):
    maven(tmp_path, monkeypatch, COPIES + "exit 1")
    with pytest.raises(SystemExit, match="could not fetch the jars of Flink"):
        fetch_flink_jars.fetch()
    assert not jars.exists()
