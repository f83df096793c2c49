"""Fetch the servers that tests of catalogs and of S3 start, each into a folder of `.cache/servers` at its first use.

Both programs come from Maven Central: the REST catalog that Iceberg uses in its own tests, and S3Proxy, which serves a
folder over S3. A lake on S3 also needs Iceberg's bundle for AWS. `make setup` fetches none of these.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from maven import fetch_folder, fetched, file_name, get_of, one_at_a_time, run_maven

SERVERS: Final = Path(__file__).resolve().parent.parent / ".cache" / "servers"


@dataclass(frozen=True)
class JavaServer:
    """A program and the jars that it needs.

    Attributes:
        name: The name of its folder.
        artifacts: Artifacts as `group:artifact:version` or `group:artifact:version:classifier`. They are fetched with
            their dependencies.
        main_class: The class with the `main` method.
        without: The groups of dependencies that the tests do not need.
    """

    name: str
    artifacts: Sequence[str]
    main_class: str
    without: Sequence[str] = ()

    @property
    def class_path(self) -> str:
        """The class path for `java -cp`."""
        return str(SERVERS / self.name / "*")


ICEBERG_REST: Final = JavaServer(
    "iceberg-rest-1.10.0",  # the newest whose test fixtures are on Maven Central
    (
        "org.apache.iceberg:iceberg-open-api:1.10.0:test-fixtures",
        "org.apache.iceberg:iceberg-core:1.10.0",
        "org.apache.iceberg:iceberg-core:1.10.0:tests",
        "org.apache.hadoop:hadoop-client-api:3.3.6",
        "org.apache.hadoop:hadoop-client-runtime:3.3.6",
        "commons-logging:commons-logging:1.2",
        "org.eclipse.jetty:jetty-servlet:11.0.26",
        "org.slf4j:slf4j-simple:2.0.17",
        "org.xerial:sqlite-jdbc:3.54.1.0",
    ),
    "org.apache.iceberg.rest.RESTCatalogServer",
)
S3PROXY: Final = JavaServer(
    "s3proxy-2.7.0",
    ("org.gaul:s3proxy:2.7.0",),
    "org.gaul.s3proxy.Main",
    without=("com.azure", "com.amazonaws", "io.netty"),  # these are for storages other than a folder
)
AWS_BUNDLE: Final = "org.apache.iceberg:iceberg-aws-bundle:1.12.0"
"""Its version is that of Iceberg's Spark runtime in `fluss_tiering.spark.versions`."""
REST_AWS: Final = (
    "org.apache.iceberg:iceberg-aws:1.10.0",
    "org.apache.iceberg:iceberg-aws-bundle:1.10.0",
    "dev.failsafe:failsafe:3.3.2",
)
"""What `ICEBERG_REST` needs for S3, of its version."""


def fetch_jar(artifact: str) -> Path:
    """Fetch one jar with Maven, without its dependencies, and return its path."""
    jar = SERVERS / file_name(artifact)
    with one_at_a_time(SERVERS):
        if not jar.exists():
            with tempfile.TemporaryDirectory(dir=SERVERS) as scratch:
                repository = run_maven(Path(scratch), get_of(artifact), what=f"{artifact}, which tests need")
                fetched(repository, artifact).replace(jar)
    return jar


def fetch(server: JavaServer) -> None:
    """Fetch the jars of the server with Maven. Their folder gets its name only when it is complete."""
    what = f"the jars of {server.name}, which tests start"
    fetch_folder(SERVERS / server.name, server.artifacts, what=what, without=server.without)


if __name__ == "__main__":
    for each in (ICEBERG_REST, S3PROXY):
        fetch(each)
    fetch_jar(AWS_BUNDLE)
    for artifact in REST_AWS:
        fetch_jar(artifact)
