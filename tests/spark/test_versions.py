"""The versions of Spark: what each of them needs, and what it does not have. `make test-matrix` runs real rounds."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest
from pyspark.sql import types

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import DataType
from fluss_tiering.spark import submit, versions
from fluss_tiering.spark.source.schema import spark_type
from fluss_tiering.spark.startup.catalog_conf import session_conf


def install(monkeypatch: pytest.MonkeyPatch, **installed: str) -> None:
    """Let these distributions be installed, and pyspark's no others."""

    def version(name: str) -> str:
        if name.replace("-", "_") not in installed:
            raise importlib.metadata.PackageNotFoundError(name)
        return installed[name.replace("-", "_")]

    monkeypatch.setattr(versions.importlib.metadata, "version", version)


@pytest.mark.parametrize(
    ("pyspark", "runtime"),
    [
        ("3.5.9", "iceberg-spark-runtime-3.5_2.12:1.12.0"),
        ("4.0.5", "iceberg-spark-runtime-4.0_2.13:1.11.0"),
        ("4.1.3", "iceberg-spark-runtime-4.1_2.13:1.12.0"),
    ],
)
def test_the_runtime_fits_the_pyspark_that_is_installed(monkeypatch, pyspark: str, runtime: str) -> None:  # D54
    install(monkeypatch, pyspark=pyspark)
    conf = submit.spark_conf({})
    assert f"org.apache.iceberg:{runtime}" in conf["spark.jars.packages"].split(",")
    assert ("spark.sql.extensions" in conf) == (pyspark == "3.5.9")
    assert submit.spark_conf({"FLUSS_TIERING_SPARK_JARS": "a.jar"})["spark.jars"] == "a.jar"


@pytest.mark.parametrize("pyspark", ["3.4.1", "4.2.1", "5.0.0"])
def test_other_versions_are_refused_unless_jars_are_named(monkeypatch, pyspark: str) -> None:  # D54
    install(monkeypatch, pyspark=pyspark)
    with pytest.raises(FlussTieringError, match=r"expected 3\.5, 4\.0, 4\.1") as refused:
        submit.spark_conf({})
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert submit.spark_conf({"FLUSS_TIERING_SPARK_JARS": "a.jar"})["spark.jars"] == "a.jar"


def test_without_pyspark_the_newest_version_is_meant(monkeypatch) -> None:  # D54
    install(monkeypatch)
    assert versions.spark_version() == max(versions.ICEBERG)


def test_pyspark_and_its_client_must_be_of_one_minor_version(monkeypatch) -> None:  # D54
    install(monkeypatch, pyspark="4.1.3", pyspark_client="4.1.3")
    versions.check_client()
    # There is no pyspark-client 4.1.4.
    install(monkeypatch, pyspark="4.1.4", pyspark_client="4.1.3")
    versions.check_client()
    install(monkeypatch, pyspark="4.0.5")
    versions.check_client()
    install(monkeypatch, pyspark="4.0.5", pyspark_client="4.1.3")
    with pytest.raises(FlussTieringError, match=r"'pyspark-client==4\.0\.\*' 'pyspark==4\.0\.\*'"):
        versions.check_client()


@pytest.mark.parametrize(("pyspark", "instead"), [("3.5.9", "fluss-tiering scan"), ("4.0.5", r'format\("fluss"\)')])
def test_the_catalog_says_which_spark_it_needs(monkeypatch, pyspark: str, instead: str) -> None:  # D54
    install(monkeypatch, pyspark=pyspark)
    with pytest.raises(FlussTieringError, match=rf"needs Spark 4\.1.*{instead}"):
        session_conf(jar=Path(__file__))


def test_the_source_loads_in_a_spark_without_times(monkeypatch) -> None:  # D54
    monkeypatch.delattr(types, "TimeType")
    with pytest.raises(FlussTieringError, match="no type TIME"):
        spark_type(DataType.parse("TIME(3)"))
    assert spark_type(DataType.parse("INT")) == types.IntegerType()
