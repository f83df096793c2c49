"""The settings of a session that reads Fluss, from Python and from the command line."""

from __future__ import annotations

import subprocess
import sys
import zipfile

import pytest

from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.spark.startup.catalog_conf import CATALOG_CLASS, CATALOG_JAR, session_conf
from fluss_tiering.spark.submit import JARS_VARIABLE


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
