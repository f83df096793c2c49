"""When the jar of the Spark catalog is compiled anew, and why it cannot be."""

from __future__ import annotations

import os
import runpy
import shutil
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

ENGINE = Path(__file__).parents[2] / "engine"


@pytest.fixture
def catalog_jar(tmp_path) -> SimpleNamespace:
    """The module in a copy of the sources, whose jar is current."""
    shutil.copytree(ENGINE / "java", tmp_path / "java")
    shutil.copy(ENGINE / "catalog_jar.py", tmp_path)
    module = SimpleNamespace(**runpy.run_path(str(tmp_path / "catalog_jar.py")))
    module.JAR.parent.mkdir(parents=True)
    with zipfile.ZipFile(module.JAR, "w") as jar:
        jar.writestr("Some.class", b"")
    newer(module.JAR, module.ENGINE)
    return module


def newer(path: Path, than: Path) -> None:
    later = max(each.stat().st_mtime for each in (than, *than.rglob("*"))) + 10
    os.utime(path, (later, later))


def test_a_jar_that_is_newer_than_its_sources_is_current(catalog_jar):
    assert catalog_jar.is_current()


def test_a_jar_that_is_not_whole_is_not_current(catalog_jar):  # D21
    catalog_jar.JAR.write_bytes(b"")
    newer(catalog_jar.JAR, catalog_jar.ENGINE)
    assert not catalog_jar.is_current()


@pytest.mark.parametrize("changed", ["catalog_jar.py", "java/fluss/tiering/spark/FlussCatalog.java"])
def test_a_jar_that_is_older_than_what_it_is_made_of_is_not_current(catalog_jar, changed):
    newer(catalog_jar.ENGINE / changed, catalog_jar.JAR)
    assert not catalog_jar.is_current()


def test_a_jar_of_sources_that_were_removed_is_not_current(catalog_jar):
    source = next(catalog_jar.SOURCES.rglob("*.java"))
    source.unlink()
    newer(source.parent, catalog_jar.JAR)
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
