"""What a command says before it starts Spark, what a driver on another machine runs, and which catalogs are refused."""

from __future__ import annotations

import json
import re
import shlex
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from cases import cases
from engine_support import descriptor, new_path
from fluss_tiering.cli.lake.spark_session import starting
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import TieringState
from fluss_tiering.spark import application
from fluss_tiering.spark.options import parse_arguments
from fluss_tiering.spark.startup.catalog_conf import session_conf
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


def test_the_arguments_set_the_catalog_of_this_server(command, server):
    words = shlex.split(command("spark-conf", "--catalog", "lake").out)
    assert words[::2] == ["--conf"] * len(session_conf(server.target))
    assert dict(word.split("=", 1) for word in words[1::2]) == session_conf(server.target, catalog="lake")


def test_a_printed_request_names_packaged_files_and_nothing_of_this_machine(command, tmp_path, monkeypatch):
    monkeypatch.setenv("FLUSS_TIERING_TOKEN", "secret")
    folder = tmp_path / "made" / "package"
    assert f"to file:{folder}" in command("package", "--to", f"file:{folder}").out
    command("package", "--to", str(tmp_path / "plain"))
    assert (tmp_path / "plain" / "application.py").is_file()
    printing = ("--print-submit", "--json", "--package", f"file://{folder}", "--spark-version", "3.5")
    request = json.loads(command("tier", "shop.orders", "--server", "ti:9133", *printing).out)

    assert set(request) == {"main_file", "py_files", "args", "conf", "packages", "env"}
    for address in (request["main_file"], *request["py_files"]):
        assert Path(address.removeprefix("file://")).is_file()
    with zipfile.ZipFile(request["py_files"][0].removeprefix("file://")) as archive:
        assert "fluss_tiering/spark/application.py" in archive.namelist()
    options = parse_arguments(request["args"])
    assert ([str(each) for each in options.tables], options.server) == (["shop.orders"], "ti:9133")
    assert [each for each in request["packages"] if "iceberg-spark-runtime-3.5" in each] == request["packages"]
    assert not {"spark.pyspark.python", "spark.jars", "spark.jars.packages"} & set(request["conf"])
    assert "secret" not in str(request)


@cases(
    "arguments, told",
    [
        ("package --to nowhere://bucket", "--to nowhere://bucket cannot be written"),
        (f"package --to {__file__}/below", "cannot be written"),
        ("tier a.b --print-submit --json", "expected --print-submit --json --package URI"),
        ("tier a.b --package s3://bucket", "expected --print-submit --json --package URI"),
        ("tier a.b --print-submit --spark-version 3.5", "expected --print-submit --json --package URI"),
        ("tier a.b --print-submit --json --package s3://b --spark-version 2.4", "Spark 2.4"),
    ],
)
def test_what_a_driver_elsewhere_cannot_use_is_refused(command, arguments, told):
    assert command(*arguments.split()).refuses(2, told)


def test_a_server_that_only_this_machine_reaches_is_told(command):
    printed = command("tier", "a.b", "--print-submit", "--json", "--package", "s3://b", "--server", "localhost:9133")
    assert "does not reach a server at localhost:9133" in printed.err


WAREHOUSE = "table.datalake.iceberg.warehouse"


# E21, E26
def test_a_table_whose_store_executors_cannot_use_fails_before_spark_starts(command, client, monkeypatch):
    monkeypatch.setattr(application, "own_session", lambda *_: pytest.fail("Spark would start"))
    for name in ("HADOOP_HOME", "ARROW_LIBHDFS_DIR", "LD_LIBRARY_PATH"):
        monkeypatch.delenv(name, raising=False)
    said = {}
    for options, error in (
        ({WAREHOUSE: "hdfs://node/lake"}, "expected ARROW_LIBHDFS_DIR"),
        (
            {WAREHOUSE: "gs://bucket/lake", "table.datalake.iceberg.gcs.user-project": "p"},
            "the lake catalog has gcs.user-project=p, and executors cannot name a project that pays",
        ),
    ):
        table = client.create_table(new_path(), descriptor(properties=options))
        said[str(table.path)] = error
    found = command("tier", *said, "--json")
    assert found.code == 1
    for path, each in zip(said, json.loads(found.out), strict=True):
        assert said[path] in each["error"]
    for path, error in said.items():
        (status,) = client.list_tiering_statuses(TablePath.parse(path))
        assert error in status.last_error
        assert status.state is TieringState.FAILED
        assert status.consecutive_failures == 1
