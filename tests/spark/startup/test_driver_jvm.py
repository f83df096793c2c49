"""The settings of the JVM that an application starts, and when they are left to its user."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pyspark
import pytest
from driver_support import JVM_OPTIONS

from fluss_tiering.spark.startup.jvm import driver_jvm_conf

CONF = {"spark.driver.defaultJavaOptions": " ".join(JVM_OPTIONS)}


@pytest.mark.parametrize(
    "environment",
    [{}, {"PYSPARK_SUBMIT_ARGS": "--conf spark.ui.enabled=false pyspark-shell"}, {"JDK_JAVA_OPTIONS": ""}],
)
def test_no_row_passes_through_it(environment: dict[str, str], tmp_path: Path) -> None:
    assert driver_jvm_conf({**environment, "SPARK_CONF_DIR": str(tmp_path)}) == CONF


@pytest.mark.parametrize(
    "environment",
    [
        {"JDK_JAVA_OPTIONS": "-XX:+UseG1GC"},
        {"JAVA_TOOL_OPTIONS": "-XX:+UseG1GC"},
        {"SPARK_SUBMIT_OPTS": "-Xss4m"},
        {"PYSPARK_SUBMIT_ARGS": "--driver-java-options -XX:+UseG1GC pyspark-shell"},
        {"PYSPARK_SUBMIT_ARGS": "--conf spark.driver.extraJavaOptions=-XX:+UseG1GC pyspark-shell"},
    ],
)
def test_who_tunes_it_in_the_environment_has_it_alone(environment: dict[str, str], tmp_path: Path) -> None:
    assert driver_jvm_conf({**environment, "SPARK_CONF_DIR": str(tmp_path)}) == {}


@pytest.mark.parametrize(
    ("file", "text", "conf"),
    [
        ("spark-defaults.conf", "spark.driver.extraJavaOptions  -XX:+UseG1GC\n", {}),
        ("spark-defaults.conf", "spark.eventLog.enabled  true\nspark.driver.defaultJavaOptions=-XX:+UseG1GC\n", {}),
        ("spark-env.sh", "export SPARK_SUBMIT_OPTS=-XX:+UseG1GC\n", {}),
        ("spark-defaults.conf", "# spark.driver.extraJavaOptions  -XX:+UseG1GC\n", CONF),
        ("spark-defaults.conf", "spark.executor.extraJavaOptions  -XX:+UseG1GC\n", CONF),
    ],
)
def test_who_tunes_it_in_spark_s_files_has_it_alone(file: str, text: str, conf: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / file).write_text(text)
    assert driver_jvm_conf({"SPARK_CONF_DIR": str(tmp_path)}) == conf


@pytest.mark.system
@pytest.mark.slow
def test_none_are_looked_for_where_pyspark_is_a_zip_file_without_a_home(tmp_path: Path) -> None:  # E20
    folder = Path(pyspark.__file__).parent
    with zipfile.ZipFile(tmp_path / "pyspark.zip", "w") as archive:
        for file in (*folder.rglob("*.py"), *folder.rglob("*.json")):
            archive.write(file, file.relative_to(folder.parent))
    program = (
        f"import sys; sys.path = [{str(tmp_path / 'pyspark.zip')!r}, *{sys.path!r}]\n"
        "import pyspark; from fluss_tiering.spark.application import driver_jvm_conf\n"
        "print(pyspark.__file__, driver_jvm_conf())"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    environment["PYSPARK_GATEWAY_PORT"] = "1"
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == f"{tmp_path}/pyspark.zip/pyspark/__init__.py {{}}\n", done.stderr
