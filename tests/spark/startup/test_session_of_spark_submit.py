"""The settings of `spark-submit`, which pyspark does not see before it talks to the JVM that has started it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from spark_support import submit_environment

pytestmark = [pytest.mark.system, pytest.mark.slow]

PROGRAM = f"""
import sys
sys.path = {sys.path!r}
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.spark.startup.session import own_session

try:
    # The application's own default, which another master of spark-submit replaces.
    with own_session("local[*,4]") as spark:
        conf = spark.sparkContext.getConf()
        print([conf.get(name) for name in ("spark.master", "spark.redaction.regex")])
except FlussTieringError as error:
    print(f"error: {{error}}")
"""


def submitted(tmp_path: Path, *options: str) -> str:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [Path(pyspark.__file__).parent / "bin" / "spark-submit", *options, "--conf", "spark.ui.enabled=false"]
    done = subprocess.run([*command, program], env=submit_environment(), capture_output=True, text=True, check=False)
    return done.stdout


def test_settings_that_spark_submit_has_stay(tmp_path: Path) -> None:
    said = submitted(tmp_path, "--master", "local[1]", "--conf", "spark.redaction.regex=(?i)mine")
    assert said == "['local[1]', '(?i)mine']\n"


@pytest.mark.long
def test_the_master_of_spark_submit_is_named_if_spark_does_not_start(tmp_path: Path) -> None:
    said = submitted(tmp_path, "--master", "local[x]")
    assert said.startswith("error: Spark does not start with the master 'local[x]'")
