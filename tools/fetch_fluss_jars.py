"""Fetch the jars of Fluss clusters into `.cache/fluss`, once. Tests start clusters from them, without Docker.

Maven resolves the jars, so that the Maven settings and mirrors of the machine apply. Each jar is fetched by itself,
because the parent POM of fluss-lake-iceberg was never published and its dependencies cannot be resolved. Later versions
of Maven's plugin read that POM in any case and cannot fetch the jar.

The servers of Fluss 1.0 are not on Maven Central. The environment variable FLUSS_JARS_1_0 names a folder that has jars
of a build of them, in `lib`, `plugins/iceberg` and `flink`. They are linked, and only the other jars are fetched.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from maven import fetched, file_name, get_of, one_at_a_time, run_maven

CACHE: Final = Path(__file__).resolve().parent.parent / ".cache" / "fluss"

_LOG4J: Final = "2.25.4"
_HADOOP: Final = "3.3.6"
_LIB: Final = "lib"
_ICEBERG: Final = "plugins/iceberg"
_FLINK: Final = "flink"
_CLIENT: Final = "client"
_OF_FLUSS: Final = {
    _LIB: ("fluss-server",),  # this jar contains ZooKeeper and all other dependencies
    _ICEBERG: ("fluss-lake-iceberg",),
    _FLINK: ("fluss-flink-1.20", "fluss-flink-tiering"),
    _CLIENT: ("fluss-client",),
}
_OF_OTHERS: Final = {
    _LIB: (
        f"org.apache.logging.log4j:log4j-slf4j-impl:{_LOG4J}",
        f"org.apache.logging.log4j:log4j-api:{_LOG4J}",
        f"org.apache.logging.log4j:log4j-core:{_LOG4J}",
    ),
    _ICEBERG: (
        f"org.apache.hadoop:hadoop-client-api:{_HADOOP}",
        f"org.apache.hadoop:hadoop-client-runtime:{_HADOOP}",
        "commons-logging:commons-logging:1.2",  # the coordinator does not start without it
        "org.xerial:sqlite-jdbc:3.46.1.3",  # for a JDBC catalog; Fluss looks for it only in the folder of the plugin
    ),
}
_CHECKSUMS: Final = {
    "org.apache.fluss:fluss-client:1.0.0": "a73101b243277f618f0acfd8a38eb31635f9cb903c040168809d480f575654c0"
}
"""The SHA-256 of jars that some mirrors have without a checksum, so that Maven could not compare it."""


@dataclass(frozen=True, slots=True)
class FlussVersion:
    """A version of Fluss, and where its jars are.

    Attributes:
        name: The version as the tests and commands of this project name it.
        release: The version on Maven Central.
        variable: The environment variable that names a folder with jars of a build, if the release lacks some.
    """

    name: str
    release: str
    variable: str | None = None

    @property
    def jars(self) -> Path:
        """The folder of the fetched jars, with `lib` and `plugins`."""
        return CACHE / self.release

    @property
    def given(self) -> Path | None:
        """The folder with jars of a build, if the environment names one."""
        folder = os.environ.get(self.variable) if self.variable else None
        return Path(folder).absolute() if folder else None

    def why_missing(self) -> str | None:
        """Return why no cluster of this version can be started here and how that is changed, or None."""
        if self.variable is None or self.given is not None or _has(self.jars / _LIB, "fluss-server"):
            return None
        return (
            f"there are no jars of Fluss {self.name}, whose servers are not on Maven Central: set {self.variable} to a "
            "folder with jars of a build (lib/fluss-server-*.jar, plugins/iceberg/fluss-lake-iceberg-*.jar, "
            "flink/fluss-flink-*.jar)"
        )

    def fetch(self) -> None:
        """Fetch what a cluster needs.

        Raises:
            SystemExit: A jar is nowhere, or Maven is not installed or failed.
        """
        self._fetch(_LIB, _ICEBERG)

    def fetch_flink(self) -> list[Path]:
        """Fetch Fluss's jars for Flink, and return their paths."""
        self._fetch(_FLINK)
        return sorted((self.jars / _FLINK).glob("*.jar"))

    def fetch_client(self) -> Path:
        """Fetch Fluss's Java client, which contains all that it needs, and return its path."""
        self._fetch(_CLIENT)
        return next((self.jars / _CLIENT).glob("*.jar"))

    def _fetch(self, *parts: str) -> None:
        with one_at_a_time(self.jars):
            self._fetch_missing(parts)

    def _fetch_missing(self, parts: Sequence[str]) -> None:
        missing: list[tuple[Path, str]] = []
        for part in parts:
            folder = self.jars / part
            for name in _OF_FLUSS[part]:
                self._link_given(part, name)
                if not _has(folder, name):
                    missing.append((folder, f"org.apache.fluss:{name}:{self.release}"))
            missing += [(folder, each) for each in _OF_OTHERS.get(part, ()) if not (folder / file_name(each)).exists()]
        if missing:
            self._get(missing)

    def _link_given(self, part: str, name: str) -> None:
        """Link a jar of the build, if it has it, into the folder of the fetched ones, in place of other versions."""
        if self.given is None:
            return
        if not self.given.is_dir():
            sys.exit(f"error: {self.variable} names {self.given}, which is not a folder")
        jar = next(iter(sorted((self.given / part).glob(f"{name}-*.jar"))), None)
        if jar is None:
            return
        folder = self.jars / part
        folder.mkdir(parents=True, exist_ok=True)
        link = folder / jar.name
        # A cluster that starts beside this finds the old jar or the new one.
        scratch = folder / f".{jar.name}.new"
        scratch.unlink(missing_ok=True)
        scratch.symlink_to(jar)
        scratch.replace(link)
        for other in folder.glob(f"{name}-*.jar"):
            if other.name != link.name:
                other.unlink(missing_ok=True)

    def _get(self, missing: list[tuple[Path, str]]) -> None:
        """Fetch jars with Maven. Each jar gets its name only when it is complete."""
        with tempfile.TemporaryDirectory(dir=self.jars) as scratch:
            repository = run_maven(
                Path(scratch),
                "".join(get_of(artifact) for _, artifact in missing),
                what=f"the jars of Fluss {self.name} that tests run against",
                strict=not all(artifact in _CHECKSUMS for _, artifact in missing),
            )
            for folder, artifact in missing:
                folder.mkdir(parents=True, exist_ok=True)
                jar = fetched(repository, artifact)
                expected = _CHECKSUMS.get(artifact)
                if expected is not None and hashlib.sha256(jar.read_bytes()).hexdigest() != expected:
                    sys.exit(f"error: Maven fetched another {jar.name} than expected: its SHA-256 is not {expected}")
                jar.replace(folder / file_name(artifact))


VERSIONS: Final = {
    version.name: version
    for version in (FlussVersion("0.9.1", "0.9.1-incubating"), FlussVersion("1.0", "1.0.0", "FLUSS_JARS_1_0"))
}
"""The versions of Fluss that the project works with, the oldest first."""


def _has(folder: Path, name: str) -> bool:
    # A link to a build that is gone is listed, too.
    return any(jar.exists() for jar in folder.glob(f"{name}-*.jar"))


def version_named(name: str) -> FlussVersion:
    """Return the version of this name.

    Raises:
        SystemExit: There is no such version, or no cluster of it can be started here.
    """
    version = VERSIONS.get(name)
    if version is None:
        sys.exit(f"error: there is no Fluss version {name!r} here; expected one of {', '.join(VERSIONS)}")
    if reason := version.why_missing():
        sys.exit(f"error: {reason}")
    return version


def main(names: list[str]) -> None:
    """Fetch the jars of the clusters of these versions."""
    for name in names or ["0.9.1"]:
        version_named(name).fetch()


if __name__ == "__main__":
    main(sys.argv[1:])
