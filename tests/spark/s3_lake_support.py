"""Servers with a lake on S3, and commands that tier into it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from spark_support import driver_environment

from engine_support import ServerProcess
from fetch_test_servers import AWS_BUNDLE, fetch_jar
from fluss_tiering.spark.submit import JARS_VARIABLE
from s3_support import REGION, SECRET_KEY

BUCKET: Final = "lake"
Catalog = Callable[[Path], dict[str, str]]


@contextmanager
def started(folder: Path, catalog: Catalog, endpoint: str, keys: dict[str, str]) -> Iterator[ServerProcess]:
    properties = {
        **catalog(folder),
        "name": "lake_on_s3",
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "s3.endpoint": endpoint,
        "s3.region": REGION,
        "s3.path-style-access": "true",
        "client.region": REGION,
        **keys,
    }
    running = ServerProcess(folder, FLUSS_TIERING_LAKE_CATALOG=json.dumps(properties)).start()
    try:
        yield running
    finally:
        ended = running.stop()
    assert ended == 0


def jdbc_catalog(folder: Path) -> dict[str, str]:
    return {
        "type": "jdbc",
        "uri": f"jdbc:sqlite:{folder}/catalog.db",
        "jdbc.schema-version": "V1",
        "warehouse": f"s3://{BUCKET}/{folder.name}",
    }


def run(
    server: ServerProcess,
    spark_jars: str,
    *arguments: str,
    settings: str = "",
    secrets: Callable[[], Sequence[str]] = lambda: (SECRET_KEY,),
    ended_with: int = 0,
) -> list[dict[str, Any]]:
    """Return what a command prints as JSON. No secret is among what it prints, or among what the server logs."""
    jars = f"{spark_jars},{fetch_jar(AWS_BUNDLE)}"
    ended = subprocess.run(
        [str(Path(sys.executable).with_name("fluss-tiering")), *arguments, "--server", server.target, "--json"],
        capture_output=True,
        text=True,
        # This server takes no checksums behind the body, which clients add since 2025 unless told otherwise.
        env={
            **os.environ,
            **driver_environment(),
            "PYSPARK_SUBMIT_ARGS": f"--conf spark.ui.enabled=false {settings} pyspark-shell",
            JARS_VARIABLE: jars,
            "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
        },
        timeout=300,
        check=False,
    )
    assert ended.returncode == ended_with, f"{ended.stdout}\n{ended.stderr}"
    written = ended.stdout + ended.stderr + server.log_file.read_text()
    assert not [each for each in secrets() if each in written]
    printed: list[dict[str, Any]] = json.loads(ended.stdout)
    return printed
