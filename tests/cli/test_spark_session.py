"""What a command says before it starts Spark."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from fluss_tiering.cli.lake.spark_session import starting
from fluss_tiering.spark.versions import packages

JARS = [each.replace(":", "_", 1).replace(":", "-") + ".jar" for each in packages()]
STARTS = "Starting Spark with the master local[*] …\n"
DOWNLOADS = "Starting Spark with the master local[*]. It downloads its packages first …\n"


def said_at_the_start(capsys) -> str:
    with starting("local[*]"):
        said = capsys.readouterr().err
    assert re.fullmatch(r"Spark has started, after \d+ m?s\n", capsys.readouterr().err)  # E36
    return said


@pytest.mark.parametrize(
    ("cache", "jars", "said"),
    [
        (".ivy2.5.2", JARS, STARTS),
        (".ivy2", JARS, STARTS),
        (".ivy2.5.2", JARS[:1], DOWNLOADS),
        (".ivy2.5.2", [], DOWNLOADS),
    ],
)
def test_a_download_is_told_only_if_there_is_one(monkeypatch, tmp_path: Path, capsys, cache, jars, said) -> None:
    monkeypatch.delenv("FLUSS_TIERING_SPARK_JARS", raising=False)
    # Java does not look at HOME.
    monkeypatch.setenv("HOME", str(tmp_path / "other"))
    monkeypatch.setattr("pwd.getpwuid", lambda _: SimpleNamespace(pw_dir=str(tmp_path)))
    (tmp_path / cache / "jars").mkdir(parents=True)
    for jar in jars:
        (tmp_path / cache / "jars" / jar).touch()
    assert said_at_the_start(capsys) == said


def test_a_user_without_a_name_has_the_home_of_its_environment(monkeypatch, tmp_path: Path, capsys) -> None:
    def no_user(_number: int) -> None:
        raise KeyError("uid not found")

    monkeypatch.delenv("FLUSS_TIERING_SPARK_JARS", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("pwd.getpwuid", no_user)
    (tmp_path / ".ivy2" / "jars").mkdir(parents=True)
    for jar in JARS:
        (tmp_path / ".ivy2" / "jars" / jar).touch()
    assert said_at_the_start(capsys) == STARTS


def test_local_jars_are_not_downloaded(monkeypatch, tmp_path: Path, capsys) -> None:
    monkeypatch.setenv("FLUSS_TIERING_SPARK_JARS", "/jars/a.jar")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert said_at_the_start(capsys) == STARTS
