"""Jars that are not the ones that were published are not taken."""

from __future__ import annotations

import hashlib

import pytest

import fetch_spark_jars

PACKAGE = "org.example:one:1.0"


@pytest.fixture
def jars(tmp_path, monkeypatch):
    """The folder of the jars; Spark would fetch a jar with these bytes."""
    monkeypatch.setattr(fetch_spark_jars, "JARS", tmp_path)
    monkeypatch.setattr(fetch_spark_jars, "packages", lambda: (PACKAGE,))
    monkeypatch.setattr(fetch_spark_jars, "resolve", lambda into, wanted: (into / "one-1.0.jar").write_bytes(b"jar"))
    return tmp_path


def test_a_jar_with_the_pinned_hash_is_taken(jars, monkeypatch):
    monkeypatch.setattr(fetch_spark_jars, "SHA256", {PACKAGE: hashlib.sha256(b"jar").hexdigest()})
    assert fetch_spark_jars.jars() == [jars / "one-1.0.jar"]


def test_another_jar_is_removed_and_named(jars, monkeypatch):
    monkeypatch.setattr(fetch_spark_jars, "SHA256", {PACKAGE: hashlib.sha256(b"other").hexdigest()})
    with pytest.raises(SystemExit, match=r"the jar of org\.example:one:1\.0 has the SHA-256"):
        fetch_spark_jars.jars()
    assert not list(jars.iterdir())
