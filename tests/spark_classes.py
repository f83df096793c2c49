"""A class-data archive for the programs with Spark that tests start, so that they start in half the time."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark

from maven import one_at_a_time

FOLDER = Path(__file__).resolve().parent.parent / ".cache" / "classes"


def archive() -> Path:
    """Return the archive for this Java and this Spark, which is made once. The jars of Spark must be known."""
    java = os.environ.get("JAVA_HOME") and shutil.which("java", path=str(Path(os.environ["JAVA_HOME"], "bin")))
    version = subprocess.run([java or "java", "-version"], capture_output=True, check=True).stderr
    made_for = f"{version!r} {pyspark.__version__} {pyspark.__file__}"
    file = FOLDER / f"spark-{hashlib.sha256(made_for.encode()).hexdigest()[:16]}.jsa"
    with one_at_a_time(FOLDER):
        if not file.is_file():
            program = Path(sys.executable).with_name("fluss-tiering")
            subprocess.run([program, "class-archive", file], check=True, capture_output=True)
    return file
