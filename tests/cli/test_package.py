"""`fluss-tiering package` and `tier --print-submit --json`: what a driver on another machine runs."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

from cases import cases
from fluss_tiering.spark.options import parse_arguments


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
