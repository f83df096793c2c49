"""What a platform is: the properties of its lake catalog, what Spark needs beside them, and what may be set wrongly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from s3_support import REGION, S3Server

NOWHERE: Final = "127.0.0.1:9"
"""An address where nothing listens."""
CHECKSUMS: Final = {"AWS_REQUEST_CHECKSUM_CALCULATION": "when_required"}
"""The environment for emulators of S3, which do not know the checksums that Amazon's library sends by default."""


@dataclass(frozen=True)
class Running:
    """A platform that runs.

    Attributes:
        properties: The properties of the lake catalog, as one sets them.
        jars: Artifacts that Spark needs beside Iceberg's runtime.
        environment: Environment variables of the driver and the executors.
        wrong: What may be set wrongly -> the properties that are then others.
        stop: Kills the platform; None if it is no program.
        start: Starts it again.
        version: The version of the program.
    """

    properties: dict[str, str]
    version: str
    jars: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    wrong: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    stop: Callable[[], None] | None = None
    start: Callable[[], None] | None = None


@dataclass(frozen=True)
class Platform:
    """A platform that can be started.

    Attributes:
        name: The name for `--only`.
        title: The name in the page.
        run: Starts it with its files in a folder.
        refuses: Steps that cannot be -> why.
        leaves_out: Steps that are not run -> why.
        options: Options of the tables.
        note: What else whoever copies the settings must know.
    """

    name: str
    title: str
    run: Callable[[Path], AbstractContextManager[Running]]
    refuses: Mapping[str, str] = field(default_factory=dict)
    leaves_out: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    note: str = ""


def sqlite(folder: Path) -> dict[str, str]:
    """Return the properties of a JDBC catalog for a store of files."""
    uri = f"jdbc:sqlite:{folder}/catalog.db?busy_timeout=30000"
    return {"type": "jdbc", "name": "lake", "uri": uri, "jdbc.schema-version": "V1"}


def place_on_s3(store: S3Server) -> dict[str, str]:
    """Return the properties that say where an S3 is."""
    return {
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "s3.endpoint": f"http://127.0.0.1:{store.port}",
        "s3.path-style-access": "true",
        "client.region": REGION,
    }
