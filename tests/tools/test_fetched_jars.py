"""Jars are fetched whole or not at all, those that were published and no others, and once by programs at once."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

import fetch_flink_jars
import fetch_fluss_jars
import fetch_spark_jars
import fetch_test_servers
from fetch_fluss_jars import VERSIONS, FlussVersion

VERSION = FlussVersion("0.1", "0.1-beta", "FLUSS_JARS_0_1")
SERVER, PLUGIN = "lib/fluss-server-0.1-beta.jar", "plugins/iceberg/fluss-lake-iceberg-0.1-beta.jar"


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the version's jars, in a folder of the test."""
    monkeypatch.setattr(fetch_fluss_jars, "CACHE", tmp_path / "jars")
    monkeypatch.setattr(fetch_fluss_jars, "_OF_OTHERS", {"lib": ("org.example:log:2.0",)})
    monkeypatch.delenv("FLUSS_JARS_0_1", raising=False)
    return tmp_path / "jars" / "0.1-beta"


def maven(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    """An `mvn` that writes down its arguments and runs a script; the file with its calls."""
    program = folder / "bin" / "mvn"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$*" >>{folder}/calls\n{script}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return folder / "calls"


# Does what Maven's plugin is told to do by the project: dependencies are copied, artifacts are got.
COPIES_AND_GETS = """\
while [ "$1" != --file ]; do shift; done
folder=$(sed -n 's|.*<outputDirectory>\\(.*\\)</outputDirectory>.*|\\1|p' $2)
repository=$(dirname $2)/repository
if [ -n "$folder" ]; then mkdir -p $folder; echo f >$folder/flink-core-1.20.3.jar; fi
for artifact in $(grep -o '<artifact>[^<]*' $2 | cut -d'>' -f2); do
  group=$(echo $artifact | cut -d: -f1 | tr . /)
  name=$(echo $artifact | cut -d: -f2) version=$(echo $artifact | cut -d: -f3)
  mkdir -p $repository/$group/$name/$version
  echo $name >$repository/$group/$name/$version/$name-$version.jar
done
"""


def build_of(folder: Path, *jars: str) -> Path:
    """A folder with these jars of a build."""
    for jar in jars:
        (folder / jar).parent.mkdir(parents=True, exist_ok=True)
        (folder / jar).write_text("built\n")
    return folder


def texts(jars: Path) -> dict[str, str]:
    return {str(jar.relative_to(jars)): jar.read_text().strip() for jar in jars.rglob("*.jar")}


@pytest.mark.system
def test_jars_are_fetched_once(jars, tmp_path, monkeypatch):
    calls = maven(tmp_path, monkeypatch, COPIES_AND_GETS)
    VERSION.fetch()
    assert texts(jars) == {SERVER: "fluss-server", PLUGIN: "fluss-lake-iceberg", "lib/log-2.0.jar": "log"}
    assert "--strict-checksums" in calls.read_text()
    assert VERSION.why_missing() is None
    VERSION.fetch()
    assert len(calls.read_text().splitlines()) == 1
    # Nothing else stays: neither Maven's repository nor its project.
    assert sorted(each.name for each in jars.iterdir()) == ["lib", "plugins"]


@pytest.mark.system
def test_jars_of_a_build_are_used_and_only_the_others_are_fetched(jars, tmp_path, monkeypatch):
    maven(tmp_path, monkeypatch, COPIES_AND_GETS)
    monkeypatch.setenv("FLUSS_JARS_0_1", str(build_of(tmp_path / "build", "lib/fluss-server-0.1-SNAPSHOT.jar")))
    VERSION.fetch()
    built = {"lib/fluss-server-0.1-SNAPSHOT.jar": "built"}
    assert texts(jars) == {**built, PLUGIN: "fluss-lake-iceberg", "lib/log-2.0.jar": "log"}
    # Another build takes the place of the first one: of two servers on a class path, either might run.
    following = build_of(tmp_path / "next", "lib/fluss-server-0.2-SNAPSHOT.jar")
    monkeypatch.setenv("FLUSS_JARS_0_1", str(following))
    VERSION.fetch()
    assert [jar.name for jar in (jars / "lib").glob("fluss-*.jar")] == ["fluss-server-0.2-SNAPSHOT.jar"]
    # What was linked is used without the variable, too, as long as it is there.
    monkeypatch.delenv("FLUSS_JARS_0_1")
    assert VERSION.why_missing() is None
    (following / "lib" / "fluss-server-0.2-SNAPSHOT.jar").unlink()
    assert VERSION.why_missing() is not None


def test_a_version_without_jars_says_how_to_get_them(jars):
    assert "set FLUSS_JARS_0_1 to a folder with jars of a build" in str(VERSION.why_missing())


def test_a_build_that_is_no_folder_is_refused(jars, tmp_path, monkeypatch):
    monkeypatch.setenv("FLUSS_JARS_0_1", str(tmp_path / "nowhere"))
    with pytest.raises(SystemExit, match=r"FLUSS_JARS_0_1 names .*nowhere, which is not a folder"):
        VERSION.fetch()


def test_an_unknown_version_is_refused():
    with pytest.raises(SystemExit, match=r"no Fluss version '0\.5' here; expected one of 0\.9\.1, 1\.0"):
        fetch_fluss_jars.main(["0.5"])
    assert list(VERSIONS) == ["0.9.1", "1.0"]


@pytest.mark.system
def test_a_jar_that_mirrors_have_without_a_checksum_is_compared_here(jars, tmp_path, monkeypatch):
    calls = maven(tmp_path, monkeypatch, COPIES_AND_GETS)
    artifact = "org.apache.fluss:fluss-client:0.1-beta"
    monkeypatch.setattr(fetch_fluss_jars, "_CHECKSUMS", {artifact: hashlib.sha256(b"another").hexdigest()})
    with pytest.raises(SystemExit, match=r"another fluss-client-0\.1-beta\.jar than expected"):
        VERSION.fetch_client()
    assert not list(jars.rglob("*.jar"))
    monkeypatch.setattr(fetch_fluss_jars, "_CHECKSUMS", {artifact: hashlib.sha256(b"fluss-client\n").hexdigest()})
    assert VERSION.fetch_client().name == "fluss-client-0.1-beta.jar"
    assert all("--lax-checksums" in call for call in calls.read_text().splitlines())


@pytest.mark.system
def test_maven_is_tried_again_and_then_said_to_have_failed(jars, tmp_path, monkeypatch, capfd):
    calls = maven(tmp_path, monkeypatch, "echo no route >&2; exit 7")
    with pytest.raises(SystemExit, match=r"could not fetch the jars of Fluss 0\.1"):
        VERSION.fetch()
    assert len(calls.read_text().splitlines()) == 3
    assert "exit code 7, attempt 3 of 3" in capfd.readouterr().err
    assert not list(jars.rglob("*.jar"))


def test_missing_maven_says_what_to_install(jars, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match=r"no `mvn` on PATH.*apt-get install maven"):
        VERSION.fetch()


TOOLS = Path(fetch_test_servers.__file__).parent
# Waits until both programs have begun, so that without the lock both would fetch.
COPIES = """\
while [ "$1" != --file ]; do shift; done
folder=$(sed -n 's|.*<outputDirectory>\\(.*\\)</outputDirectory>.*|\\1|p' $2)
for i in $(seq 300); do [ $(ls {begun} | wc -l) = 2 ] && break; sleep 0.1; done
sleep 1
mkdir -p $folder
echo jar >$folder/one-1.0.jar
"""
FETCHES = """\
import sys
from pathlib import Path
from maven import fetch_folder
begun, target = map(Path, sys.argv[1:3])
(begun / sys.argv[3]).touch()
fetch_folder(target, ["org.example:one:1.0"], what="the jar of a test")
assert (target / "one-1.0.jar").read_text() == "jar\\n"
"""


@pytest.mark.system
@pytest.mark.slow
def test_two_programs_fetch_one_folder_once(tmp_path, monkeypatch):
    begun, target = tmp_path / "begun", tmp_path / "servers" / "one"
    begun.mkdir()
    calls = maven(tmp_path, monkeypatch, COPIES.replace("{begun}", str(begun)))
    monkeypatch.setenv("PYTHONPATH", str(TOOLS))
    command = [sys.executable, "-c", FETCHES, str(begun), str(target)]
    programs = [subprocess.Popen([*command, name], stderr=subprocess.PIPE, text=True) for name in ("first", "second")]
    ended = [(each.communicate()[1], each.returncode) for each in programs]
    assert [code for _, code in ended] == [0, 0], ended
    assert len(calls.read_text().splitlines()) == 1
    assert list(target.parent.iterdir()) == [target]


PACKAGE = "org.example:one:1.0"


@pytest.fixture
def spark_jars(tmp_path, monkeypatch):
    """The folder of the jars; Spark would fetch a jar with these bytes."""
    monkeypatch.setattr(fetch_spark_jars, "JARS", tmp_path)
    monkeypatch.setattr(fetch_spark_jars, "packages", lambda: (PACKAGE,))
    monkeypatch.setattr(fetch_spark_jars, "resolve", lambda into, wanted: (into / "one-1.0.jar").write_bytes(b"jar"))
    return tmp_path


def test_a_jar_with_the_pinned_hash_is_taken(spark_jars, monkeypatch):
    monkeypatch.setattr(fetch_spark_jars, "SHA256", {PACKAGE: hashlib.sha256(b"jar").hexdigest()})
    assert fetch_spark_jars.jars() == [spark_jars / "one-1.0.jar"]


def test_another_jar_is_removed_and_named(spark_jars, monkeypatch):
    monkeypatch.setattr(fetch_spark_jars, "SHA256", {PACKAGE: hashlib.sha256(b"other").hexdigest()})
    with pytest.raises(SystemExit, match=r"the jar of org\.example:one:1\.0 has the SHA-256"):
        fetch_spark_jars.jars()
    assert not list(spark_jars.iterdir())


FLUSS = FlussVersion("0.1", "0.1-beta")


@pytest.fixture
def flink_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(fetch_fluss_jars, "CACHE", tmp_path / "fluss")
    monkeypatch.setattr(fetch_flink_jars, "JARS", tmp_path / "flink" / "jars")
    return tmp_path / "flink" / "jars"


@pytest.mark.system
def test_flinks_jars_are_fetched_once_with_those_of_fluss(flink_jars, tmp_path, monkeypatch):
    calls = maven(tmp_path, monkeypatch, COPIES_AND_GETS)
    first = fetch_flink_jars.class_path(FLUSS)
    names = ["flink-core-1.20.3.jar", "fluss-flink-1.20-0.1-beta.jar", "fluss-flink-tiering-0.1-beta.jar"]
    assert [each.name for each in first[:3]] == names
    assert "fluss-lake-iceberg-0.1-beta.jar" in {each.name for each in first[3:]}
    assert all(each.exists() for each in first)
    called = calls.read_text()
    assert fetch_flink_jars.class_path(FLUSS) == first
    assert calls.read_text() == called
    # Nothing else stays: neither Maven's repository nor its project.
    assert list(flink_jars.parent.iterdir()) == [flink_jars]
