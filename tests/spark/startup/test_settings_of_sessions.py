"""The settings of sessions and of their JVM: ours, the user's, what Spark masks, and workers that are forked."""

from __future__ import annotations

import importlib.metadata
import logging
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pyspark
import pytest
from driver_support import JVM_OPTIONS
from spark_support import submit_environment

from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.spark.startup import workers
from fluss_tiering.spark.startup.catalog_conf import CATALOG_CLASS, CATALOG_JAR, session_conf
from fluss_tiering.spark.startup.jvm import driver_jvm_conf
from fluss_tiering.spark.startup.session import REDACTION, SECRETS, redaction_conf
from fluss_tiering.spark.startup.workers import local_workers_conf, rehearse_commit, warm_up
from fluss_tiering.spark.submit import JARS_VARIABLE
from fluss_tiering.spark.worker_daemon import without_archives

DAEMON = {"spark.python.daemon.module": "fluss_tiering.spark.worker_daemon"}


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*,4]"])
def test_workers_of_a_local_master_are_forked_loaded(master: str) -> None:
    assert local_workers_conf(master, sys.executable) == DAEMON


def test_workers_that_may_not_have_this_package_are_spark_s_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert local_workers_conf("spark://host:7077", sys.executable) == {}
    assert local_workers_conf("local[2]", "no-such-python") == {}
    other = tmp_path / "python3"
    other.symlink_to(sys.executable)
    assert local_workers_conf("local[2]", str(other)) == {}, "a link is another environment"

    def not_installed(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", not_installed)
    assert local_workers_conf("local[2]", sys.executable) == {}


def test_a_worker_begins_with_what_it_needs_and_without_archives(spark) -> None:
    def loaded(_: object) -> list[tuple[bool, list[str]]]:
        importers = [path for path in sys.path_importer_cache if ".zip" in path or ".jar" in path]
        return [("fluss_tiering.spark.round.pieces" in sys.modules, importers)]

    assert spark.sparkContext.parallelize([0], 1).mapPartitions(loaded).collect() == [(True, [])]


@pytest.mark.system
def test_what_workers_are_forked_with_is_not_what_calls_the_server() -> None:
    script = (
        "import importlib, sys\n"
        "from fluss_tiering.spark.worker_daemon import NEEDED\n"
        "for name in NEEDED: importlib.import_module(name)\n"
        "print('grpc' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout == b"False\n"


def test_a_distribution_s_pyspark_is_used_as_a_folder_and_its_py4j_as_it_is(tmp_path: Path) -> None:
    package = tmp_path / "python" / "pyspark"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    archives = [f"{tmp_path}/python/lib/{name}" for name in ("pyspark.zip", "py4j-0.10-src.zip")]
    path = ["", *archives, f"{tmp_path}/jars/spark-core.jar", "/library"]
    assert without_archives(path, str(tmp_path)) == [str(package.parent), "", "/library", archives[1]]


@pytest.mark.parametrize("home", ["", "/nowhere"])
def test_archives_stay_where_pyspark_is_nowhere_else(home: str) -> None:
    assert without_archives(["", "/a/pyspark.zip"], home) == ["", "/a/pyspark.zip"]


def test_a_rehearsal_leaves_the_session_as_it_was(spark) -> None:
    before = spark.sql("SET").collect()
    rehearse_commit(spark)
    assert spark.sql("SET").collect() == before
    assert not [name for (name,) in spark.sql("SHOW CATALOGS").collect() if "rehearsal" in name]


def test_a_warm_up_that_fails_is_left_to_the_first_round(
    spark, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(workers, "rehearse_commit", fail)
    with caplog.at_level(logging.DEBUG, "fluss_tiering.spark.startup.workers"):
        warm_up(spark)
    assert "no space left on device" in caplog.text


def test_the_jar_has_the_catalog_and_the_source():
    with zipfile.ZipFile(CATALOG_JAR) as jar:
        assert f"{CATALOG_CLASS.replace('.', '/')}.class" in jar.namelist()
        services = jar.read("META-INF/services/org.apache.spark.sql.sources.DataSourceRegister").decode()
        assert f"{services.strip().replace('.', '/')}.class" in jar.namelist()


def test_the_settings_name_catalog_server_and_jars():
    conf = session_conf("there:1", catalog="lake", environment={JARS_VARIABLE: "/a.jar"})
    assert conf["spark.jars"] == f"/a.jar,{CATALOG_JAR}"
    assert conf["spark.sql.catalog.lake"] == CATALOG_CLASS
    assert conf["spark.sql.catalog.lake.server"] == "there:1"
    assert conf["spark.pyspark.python"] == sys.executable
    assert not any(key.endswith(".server") for key in session_conf(environment={}))


def test_a_jar_that_is_not_there_is_named_with_what_to_do(tmp_path):
    with pytest.raises(FlussTieringError, match="make setup"):
        session_conf(jar=tmp_path / "missing.jar")


@pytest.mark.system
def test_what_builds_the_settings_loads_neither_spark_nor_arrow():
    code = (
        "import sys, fluss_tiering.spark.startup.catalog_conf; "
        "print(sorted({'pyspark', 'pyarrow', 'grpc'} & set(sys.modules)))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert loaded.stdout.strip() == "[]"


PREFIX = "spark.sql.catalog.lake."


@pytest.mark.parametrize(
    "name",
    [
        "s3.secret-access-key",
        "s3.access-key-id",
        "s3.session-token",
        "s3.sse.key",
        "credential",
        "token",
        "header.Authorization",
        "jdbc.password",
        "adls.sas-token.account",
        "adls.connection-string.account",
        "adls.auth.shared-key.account.key",
        "gcs.oauth2.token",
        "gcs.decryption-key",
    ],
)
def test_names_of_secrets_are_masked(name: str) -> None:
    assert re.search(SECRETS, PREFIX + name)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("uri", "https://lake.example.com/v1"),
        ("warehouse", "s3://lake/warehouse"),
        ("s3.endpoint", "http://127.0.0.1:9000"),
        ("io-impl", "org.apache.iceberg.aws.s3.S3FileIO"),
    ],
)
def test_what_is_no_secret_stays_readable(name: str, value: str) -> None:
    assert not re.search(SECRETS, PREFIX + name)
    assert not re.search(SECRETS, value)


def test_a_password_in_a_url_is_masked() -> None:
    assert re.search(SECRETS, "jdbc:postgresql://lake:planted@db.example.com/lake")


def test_a_pattern_of_the_user_stays() -> None:
    assert redaction_conf(None, {}) == {REDACTION: SECRETS}
    assert redaction_conf("mine", {}) == {}
    assert redaction_conf(None, {"PYSPARK_SUBMIT_ARGS": f"--conf {REDACTION}=mine pyspark-shell"}) == {}


CONF = {"spark.driver.defaultJavaOptions": " ".join(JVM_OPTIONS)}


@pytest.mark.parametrize(
    ("environment", "conf"),
    [
        ({}, CONF),
        ({"PYSPARK_SUBMIT_ARGS": "--conf spark.ui.enabled=false pyspark-shell"}, CONF),
        ({"JDK_JAVA_OPTIONS": ""}, CONF),
        ({"JDK_JAVA_OPTIONS": "-XX:+UseG1GC"}, {}),
        ({"JAVA_TOOL_OPTIONS": "-XX:+UseG1GC"}, {}),
        ({"SPARK_SUBMIT_OPTS": "-Xss4m"}, {}),
        ({"PYSPARK_SUBMIT_ARGS": "--driver-java-options -XX:+UseG1GC pyspark-shell"}, {}),
        ({"PYSPARK_SUBMIT_ARGS": "--conf spark.driver.extraJavaOptions=-XX:+UseG1GC pyspark-shell"}, {}),
    ],
)
def test_who_tunes_it_in_the_environment_has_it_alone(
    environment: dict[str, str], conf: dict[str, str], tmp_path: Path
) -> None:
    assert driver_jvm_conf({**environment, "SPARK_CONF_DIR": str(tmp_path)}) == conf


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


@pytest.mark.system
@pytest.mark.slow
def test_settings_that_spark_submit_has_stay(tmp_path: Path) -> None:
    said = submitted(tmp_path, "--master", "local[1]", "--conf", "spark.redaction.regex=(?i)mine")
    assert said == "['local[1]', '(?i)mine']\n"


@pytest.mark.long
@pytest.mark.system
@pytest.mark.slow
def test_the_master_of_spark_submit_is_named_if_spark_does_not_start(tmp_path: Path) -> None:
    said = submitted(tmp_path, "--master", "local[x]")
    assert said.startswith("error: Spark does not start with the master 'local[x]'")
