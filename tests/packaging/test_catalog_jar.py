"""When the jar of the Spark catalog is compiled anew, and why it cannot be."""

from __future__ import annotations

import os
import runpy
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

ENGINE = Path(__file__).parents[2] / "engine"


@pytest.fixture
def catalog_jar(tmp_path) -> SimpleNamespace:
    """The module in a copy of the sources."""
    shutil.copytree(ENGINE / "java", tmp_path / "java")
    shutil.copy(ENGINE / "catalog_jar.py", tmp_path)
    return SimpleNamespace(**runpy.run_path(str(tmp_path / "catalog_jar.py")))


def test_a_jar_is_current_if_it_is_whole_and_made_from_these_sources(catalog_jar, tmp_path):  # D21
    assert not catalog_jar.is_current()
    catalog_jar.JAR.parent.mkdir(parents=True)
    classes = tmp_path / "classes"
    classes.mkdir()
    catalog_jar._pack(classes)
    packed = catalog_jar.JAR.read_bytes()
    for changed in ("catalog_jar.py", "java/fluss/tiering/spark/FlussCatalog.java"):
        source = tmp_path / changed
        before = source.read_bytes()
        # The time of a file says nothing: an archive gives all of its files the same.
        source.touch()
        assert catalog_jar.is_current()
        source.write_bytes(before + b"\n")
        assert not catalog_jar.is_current()
        source.write_bytes(before)
    next(catalog_jar.SOURCES.rglob("*.java")).unlink()
    assert not catalog_jar.is_current()
    catalog_jar.JAR.write_bytes(packed[:-30])
    assert not catalog_jar.is_current()


def test_a_folder_without_the_jar_of_iceberg_is_named(catalog_jar, monkeypatch, tmp_path):
    spark, iceberg = tmp_path / "spark", tmp_path / "iceberg"
    for jar in (spark / "spark-sql_2.13-4.1.3.jar", iceberg / "iceberg-spark-runtime-4.1_2.13-1.12.0.jar"):
        jar.parent.mkdir()
        jar.touch()
    monkeypatch.setenv(catalog_jar.JARS_VARIABLE, str(spark))
    with pytest.raises(catalog_jar.JarError, match=r"spark has no jar of Iceberg: expected one of org\."):
        catalog_jar.build()
    monkeypatch.setenv(catalog_jar.JARS_VARIABLE, f"{spark}{os.pathsep}{iceberg}")
    assert catalog_jar.class_folders(tmp_path) == [spark, iceberg]


def test_a_folder_without_the_jars_of_spark_is_named(catalog_jar, monkeypatch, tmp_path):
    monkeypatch.setenv(catalog_jar.JARS_VARIABLE, str(tmp_path / "nothing"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(catalog_jar.JarError, match=r"nothing has no spark-sql jar: expected the folder `jars`"):
        catalog_jar.build()
