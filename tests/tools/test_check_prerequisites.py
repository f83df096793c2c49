"""Set-up says what to install when Java is missing or wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CHECK = Path(__file__).resolve().parents[2] / "tools" / "check_prerequisites.py"


def check(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(CHECK)], env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def java(folder: Path, says: str) -> Path:
    """A folder with a `java` that says this of its version."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    program.chmod(0o755)
    program.with_name("javac").touch()
    return folder


@pytest.mark.system
@pytest.mark.parametrize("version", ["17.0.15", "21.0.2"])
def test_java_that_spark_runs_on_passes(tmp_path, version):
    assert check(JAVA_HOME=str(java(tmp_path, f'openjdk version "{version}" 2025-04-15'))).returncode == 0


@pytest.mark.system
def test_missing_java_says_what_to_install(tmp_path):
    empty, without_compiler = tmp_path / "empty", java(tmp_path / "runtime", 'openjdk version "17.0.15"')
    (without_compiler / "bin" / "javac").unlink()
    for environment, words in (
        ({"PATH": str(tmp_path)}, "There is no `javac` on PATH"),
        ({"JAVA_HOME": str(empty)}, f"JAVA_HOME={empty} has no bin/java"),
        ({"JAVA_HOME": str(without_compiler)}, f"JAVA_HOME={without_compiler} has no bin/javac"),
    ):
        answer = check(**environment)
        assert answer.returncode == 1
        assert words in answer.stderr
        assert "openjdk-17-jdk" in answer.stderr


@pytest.mark.system
@pytest.mark.parametrize(
    ("says", "words"), [('java version "1.8.0_202"', "is Java 1"), ("no idea", "names no version")]
)
def test_other_java_is_named_with_what_is_needed(tmp_path, says, words):
    answer = check(JAVA_HOME=str(java(tmp_path, says)))
    assert answer.returncode == 1
    assert words in answer.stderr
    assert "Spark needs a JDK of Java 17 or 21" in answer.stderr
    assert "Traceback" not in answer.stderr
