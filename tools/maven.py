"""Fetch jars with Maven, so that the Maven settings and mirrors of the machine apply.

A file or a folder gets its name only when it is complete, and one process fetches at a time.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_ATTEMPTS: Final = 3
_TIMEOUT_S: Final = 900
_POM: Final = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>fluss-tiering</groupId><artifactId>fluss-jars</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>{dependencies}</dependencies>
  <build><plugins><plugin>
    <groupId>org.apache.maven.plugins</groupId><artifactId>maven-dependency-plugin</artifactId><version>2.8</version>
    <executions>{executions}</executions>
  </plugin></plugins></build>
</project>
"""
_EXECUTION: Final = (
    "<execution><id>{artifact}</id><phase>validate</phase><goals><goal>get</goal></goals>"
    "<configuration><artifact>{artifact}</artifact><transitive>false</transitive></configuration></execution>"
)
_COPY: Final = (
    "<execution><id>copy</id><phase>validate</phase><goals><goal>copy-dependencies</goal></goals>"
    "<configuration><outputDirectory>{folder}</outputDirectory><includeScope>runtime</includeScope></configuration>"
    "</execution>"
)


def file_name(artifact: str) -> str:
    """Return the name of the jar of `group:artifact:version` or `group:artifact:version:jar:classifier`."""
    _, name, version, *classifier = artifact.split(":")
    return "-".join([name, version, *classifier[1:]]) + ".jar"


def get_of(artifact: str) -> str:
    """Return the execution of Maven's plugin that fetches only this jar, for `run_maven`."""
    return _EXECUTION.format(artifact=artifact)


def fetched(repository: Path, artifact: str) -> Path:
    """Return the path at which Maven stored the jar."""
    group, name, version, *_ = artifact.split(":")
    return repository.joinpath(*group.split("."), name, version) / file_name(artifact)


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Let one process after the other fetch into a folder, which is created if it does not exist.

    Processes of a test run may need the same files at once. Each looks for them inside this, so that the second one
    finds what the first one fetched.
    """
    folder.mkdir(parents=True, exist_ok=True)
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def run_maven(scratch: Path, executions: str, *, what: str, dependencies: str = "", strict: bool = True) -> Path:
    """Run executions of Maven's dependency plugin in a scratch project, and return the repository that they filled.

    A failed run is repeated, because the network may fail for a moment. Maven keeps what it has fetched.

    Args:
        scratch: The folder for the project and the repository.
        executions: The executions in XML.
        what: A description of the jars, for error messages.
        dependencies: The dependencies of the project in XML.
        strict: Whether jars without a checksum, or with a wrong one, are refused.

    Raises:
        SystemExit: Maven is not installed, or it failed.
    """
    maven = shutil.which("mvn")
    if maven is None:
        sys.exit(
            f"error: there is no `mvn` on PATH, which fetches {what}: "
            "install Maven (Debian, Ubuntu: apt-get install maven; macOS: brew install maven)"
        )
    repository = scratch / "repository"
    pom = scratch / "pom.xml"
    pom.write_text(_POM.format(executions=executions, dependencies=dependencies))
    command = [
        *(maven, "--batch-mode", "--no-transfer-progress", "--strict-checksums" if strict else "--lax-checksums"),
        *("--file", str(pom), f"-Dmaven.repo.local={repository}", "validate"),
    ]
    for attempt in range(1, _ATTEMPTS + 1):
        ended = subprocess.run(command, check=False, timeout=_TIMEOUT_S)
        if ended.returncode == 0:
            return repository
        sys.stderr.write(f"Maven failed with exit code {ended.returncode}, attempt {attempt} of {_ATTEMPTS}\n")
    sys.exit(f"error: Maven could not fetch {what}; its output above says why")


def fetch_folder(target: Path, artifacts: Sequence[str], *, what: str, without: Sequence[str] = ()) -> None:
    """Fetch artifacts with their dependencies into a folder, unless it is there.

    Args:
        target: The folder.
        artifacts: The artifacts as `group:artifact:version` or `group:artifact:version:classifier`.
        what: A description of the jars, for error messages.
        without: The groups of dependencies that are left out.

    Raises:
        SystemExit: Maven is not installed, or it failed.
    """
    with one_at_a_time(target.parent):
        if target.exists():
            return
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            folder = Path(scratch) / "jars"
            dependencies = "".join(_dependency(artifact, without) for artifact in artifacts)
            run_maven(Path(scratch), _COPY.format(folder=folder), dependencies=dependencies, what=what)
            folder.replace(target)


def _dependency(artifact: str, without: Sequence[str]) -> str:
    group, name, version, *classifier = artifact.split(":")
    exclusions = "".join(
        f"<exclusion><groupId>{each}</groupId><artifactId>*</artifactId></exclusion>" for each in without
    )
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        f"{''.join(f'<classifier>{each}</classifier>' for each in classifier)}"
        f"<exclusions>{exclusions}</exclusions></dependency>"
    )
