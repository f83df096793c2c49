"""Fetch the jars of a Fluss cluster into `.cache/fluss`, once. Tests start a cluster from them, without Docker.

Maven resolves the jars, so that the Maven settings and mirrors of the machine apply. Each jar is fetched by itself,
because the parent POM of fluss-lake-iceberg was never published and its dependencies cannot be resolved. Later versions
of Maven's plugin read that POM in any case and cannot fetch the jar.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

FLUSS_VERSION: Final = "0.9.1-incubating"
JARS: Final = Path(__file__).resolve().parent.parent / ".cache" / "fluss" / FLUSS_VERSION
LIB: Final = JARS / "lib"
PLUGINS: Final = JARS / "plugins"

_LOG4J: Final = "2.25.4"
_HADOOP: Final = "3.3.6"
ARTIFACTS: Final = {
    LIB: (
        f"org.apache.fluss:fluss-server:{FLUSS_VERSION}",  # this jar contains ZooKeeper and all other dependencies
        f"org.apache.logging.log4j:log4j-slf4j-impl:{_LOG4J}",
        f"org.apache.logging.log4j:log4j-api:{_LOG4J}",
        f"org.apache.logging.log4j:log4j-core:{_LOG4J}",
    ),
    PLUGINS / "iceberg": (
        f"org.apache.fluss:fluss-lake-iceberg:{FLUSS_VERSION}",
        f"org.apache.hadoop:hadoop-client-api:{_HADOOP}",
        f"org.apache.hadoop:hadoop-client-runtime:{_HADOOP}",
        "commons-logging:commons-logging:1.2",  # the coordinator does not start without it
        "org.xerial:sqlite-jdbc:3.46.1.3",  # for a JDBC catalog; Fluss looks for it only in the folder of the plugin
    ),
}
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


def file_name(artifact: str) -> str:
    """Return the name of the jar: `artifact-version.jar`."""
    _, name, version = artifact.split(":")
    return f"{name}-{version}.jar"


def fetch() -> None:
    """Fetch the missing jars with Maven. Each jar gets its name only when it is complete."""
    missing = [
        (folder, artifact)
        for folder, artifacts in ARTIFACTS.items()
        for artifact in artifacts
        if not (folder / file_name(artifact)).exists()
    ]
    if not missing:
        return
    JARS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=JARS) as scratch:
        repository = run_maven(
            Path(scratch),
            "".join(get_of(artifact) for _, artifact in missing),
            what="the jars of the Fluss cluster that tests run against",
        )
        for folder, artifact in missing:
            folder.mkdir(parents=True, exist_ok=True)
            fetched(repository, artifact).replace(folder / file_name(artifact))


def get_of(artifact: str) -> str:
    """Return the execution of Maven's plugin that fetches only this jar, for `run_maven`."""
    return _EXECUTION.format(artifact=artifact)


def fetched(repository: Path, artifact: str) -> Path:
    """Return the path at which Maven stored the jar."""
    group, name, version = artifact.split(":")
    return repository.joinpath(*group.split("."), name, version) / file_name(artifact)


def run_maven(scratch: Path, executions: str, *, what: str, dependencies: str = "") -> Path:
    """Run executions of Maven's dependency plugin in a scratch project, and return the repository that they filled.

    A failed run is repeated, because the network may fail for a moment. Maven keeps what it has fetched.

    Args:
        scratch: The folder for the project and the repository.
        executions: The executions in XML.
        what: A description of the jars, for error messages.
        dependencies: The dependencies of the project in XML.

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
        *(maven, "--batch-mode", "--no-transfer-progress", "--strict-checksums"),
        *("--file", str(pom), f"-Dmaven.repo.local={repository}", "validate"),
    ]
    for attempt in range(1, _ATTEMPTS + 1):
        ended = subprocess.run(command, check=False, timeout=_TIMEOUT_S)
        if ended.returncode == 0:
            return repository
        sys.stderr.write(f"Maven failed with exit code {ended.returncode}, attempt {attempt} of {_ATTEMPTS}\n")
    sys.exit(f"error: Maven could not fetch {what}; its output above says why")


if __name__ == "__main__":
    fetch()
