"""Flink's jars are fetched as a whole: with what Flink needs, and Fluss's jars for Flink beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

import fetch_flink_jars
import fetch_fluss_jars

# Does what Maven's plugin is told to do by the project: dependencies copied, two artifacts got.
COPIES = """\
while [ "$1" != --file ]; do shift; done
folder=$(sed -n 's|.*<outputDirectory>\\(.*\\)</outputDirectory>.*|\\1|p' $2)
repository=$(dirname $2)/repository
mkdir -p $folder
echo f >$folder/flink-core-1.20.3.jar
for artifact in $(grep -o '<artifact>[^<]*' $2 | cut -d'>' -f2); do
  name=$(echo $artifact | cut -d: -f2) version=$(echo $artifact | cut -d: -f3)
  mkdir -p $repository/org/apache/fluss/$name/$version
  echo j >$repository/org/apache/fluss/$name/$version/$name-$version.jar
done
"""


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(fetch_fluss_jars, "ARTIFACTS", {})
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
    fetch_flink_jars.fetch()
    version = fetch_fluss_jars.FLUSS_VERSION
    names = ["flink-core-1.20.3.jar", f"fluss-flink-1.20-{version}.jar", f"fluss-flink-tiering-{version}.jar"]
    assert sorted(each.name for each in jars.iterdir()) == names
    assert [each.name for each in fetch_flink_jars.class_path()][: len(names)] == names
    fetch_flink_jars.fetch()
    assert calls.read_text().split() == ["called"]
    # Nothing else stays: neither Maven's repository nor its project.
    assert list(jars.parent.iterdir()) == [jars]


@pytest.mark.system
def test_a_failure_leaves_no_jars(jars, tmp_path, monkeypatch):
    maven(tmp_path, monkeypatch, COPIES + "exit 1")
    with pytest.raises(SystemExit, match="could not fetch the jars of Flink"):
        fetch_flink_jars.fetch()
    assert not jars.exists()
