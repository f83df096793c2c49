"""`fluss-tiering class-archive`: one JVM makes the archive, another uses it, and reasons why there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.spark.startup.class_archive import make_class_archive
from fluss_tiering.spark.startup.jvm import ARCHIVE_VARIABLE, OPTIONS_KEY, driver_jvm_conf

START = f"""
import sys
from fluss_tiering.spark.startup.jvm import driver_jvm_conf
from fluss_tiering.spark.startup.session import own_session

conf = {{key: f"{{options}} -Xlog:class+load:file={{sys.argv[1]}}" for key, options in driver_jvm_conf().items()}}
assert list(conf) == ["{OPTIONS_KEY}"]
with own_session("local[1]", conf):
    print("started")
"""


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.system
def test_spark_starts_with_the_classes_of_an_archive(spark_jars: str, tmp_path: Path) -> None:
    archive, loaded = tmp_path / "an archive.jsa", tmp_path / "loaded"
    archive.write_text("an older one")
    environment = {**os.environ, "FLUSS_TIERING_SPARK_JARS": spark_jars}

    made = run(str(Path(sys.executable).with_name("fluss-tiering")), "class-archive", str(archive), env=environment)
    assert f"{archive} has been written" in made
    assert sorted(tmp_path.iterdir()) == [archive]

    started = run(sys.executable, "-c", START, str(loaded), env={**environment, ARCHIVE_VARIABLE: str(archive)})
    assert started == "started\n"
    lines = loaded.read_text().splitlines()
    from_archive = [line for line in lines if "org.apache.spark." in line and "shared objects file (top)" in line]
    assert len(from_archive) > 1_000


def run(*command: str, env: dict[str, str]) -> str:
    """Run Python code with the archive, and return only what it prints itself: Java's messages go elsewhere."""
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=200, check=False)
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    return ended.stdout


def test_an_archive_that_is_not_there_is_told_and_done_without(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nowhere = {"SPARK_CONF_DIR": str(tmp_path)}
    assert driver_jvm_conf({**nowhere, ARCHIVE_VARIABLE: "/no/such.jsa"}) == driver_jvm_conf(nowhere)
    assert f"{ARCHIVE_VARIABLE}=/no/such.jsa is not a file" in caplog.text


def test_what_java_makes_no_archive_of_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.jsa"
    assert refusal(tmp_path / "nowhere" / "a.jsa").startswith(f"{tmp_path}/nowhere is not a folder")
    assert refusal(Path("/proc/a.jsa")).startswith("cannot write /proc/a.jsa: ")
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-Xss4m")
    assert "has options for the driver's JVM" in refusal(file)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    (tmp_path / "log4j2.properties").touch()
    assert refusal(file).startswith(f"{tmp_path} has files")


def refusal(file: Path) -> str:
    with pytest.raises(FlussTieringError) as refused:
        make_class_archive(file, lambda: pytest.fail("Spark would start"))
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    return refused.value.message
