"""A class-data archive for the programs with Spark that tests start, so that they start in half the time."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pyspark

from java_programs import program
from maven import one_at_a_time

FOLDER = Path(__file__).resolve().parent.parent / ".cache" / "classes"


def archive() -> Path | None:
    """Return the archive for this Java and this Spark, which is made once; None if Java makes none on this host.

    The jars of Spark must be known.
    """
    version = subprocess.run([program("java"), "-version"], capture_output=True, check=True).stderr
    made_for = f"{version!r} {pyspark.__version__} {pyspark.__file__}"
    file = FOLDER / f"spark-{hashlib.sha256(made_for.encode()).hexdigest()[:16]}.jsa"
    with one_at_a_time(FOLDER):
        if not file.is_file():
            command = [Path(sys.executable).with_name("fluss-tiering"), "class-archive", file]
            # Java makes none with settings of the host for it. Programs then start without one.
            subprocess.run(command, check=False, capture_output=True)
    return file if file.is_file() else None
