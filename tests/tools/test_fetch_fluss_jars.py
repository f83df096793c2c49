"""The jars of a Fluss cluster are whole or not there; what keeps them from being fetched is said."""

from __future__ import annotations

from pathlib import Path

import pytest

import fetch_fluss_jars

ARTIFACTS = ("org.example:server:1.0", "org.example:plugin:2.0")


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Two jars to be fetched into a folder of the test."""
    folders = [tmp_path / "jars" / "lib", tmp_path / "jars" / "plugins"]
    monkeypatch.setattr(fetch_fluss_jars, "JARS", tmp_path / "jars")
    monkeypatch.setattr(
        fetch_fluss_jars, "ARTIFACTS", {folder: (each,) for folder, each in zip(folders, ARTIFACTS, strict=True)}
    )
    return [folders[0] / "server-1.0.jar", folders[1] / "plugin-2.0.jar"]


def maven(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    """An `mvn` that writes down its arguments and runs a script; the file with its calls."""
    program = folder / "bin" / "mvn"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$*" >>{folder}/calls\n{script}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return folder / "calls"


GETS = """\
for argument; do case $argument in -Dmaven.repo.local=*) repository=${argument#*=};; esac; done
mkdir -p $repository/org/example/server/1.0 $repository/org/example/plugin/2.0
echo s >$repository/org/example/server/1.0/server-1.0.jar
echo p >$repository/org/example/plugin/2.0/plugin-2.0.jar
"""


@pytest.mark.system
def test_jars_are_fetched_once(jars, tmp_path, monkeypatch):
    calls = maven(tmp_path, monkeypatch, GETS)
    fetch_fluss_jars.fetch()
    assert [jar.read_text() for jar in jars] == ["s\n", "p\n"]
    assert "--strict-checksums" in calls.read_text()
    fetch_fluss_jars.fetch()
    assert len(calls.read_text().splitlines()) == 1
    # Nothing else stays: neither Maven's repository nor its project.
    assert sorted(each.name for each in (tmp_path / "jars").iterdir()) == ["lib", "plugins"]


@pytest.mark.system
def test_maven_is_tried_again_and_then_said_to_have_failed(jars, tmp_path, monkeypatch, capfd):
    calls = maven(tmp_path, monkeypatch, "echo no route >&2; exit 7")
    with pytest.raises(SystemExit, match="could not fetch the jars of the Fluss cluster"):
        fetch_fluss_jars.fetch()
    assert len(calls.read_text().splitlines()) == 3
    assert "exit code 7, attempt 3 of 3" in capfd.readouterr().err
    assert not any(jar.exists() for jar in jars)


def test_missing_maven_says_what_to_install(jars, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match=r"no `mvn` on PATH.*apt-get install maven"):
        fetch_fluss_jars.fetch()
