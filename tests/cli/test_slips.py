"""What a person mistypes is told in words of the command line, with the nearest name if there is one."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer

from fluss_tiering.cli.common import help_words
from fluss_tiering.cli.main import app

_OF_LIBRARIES = ("Value error", "Input should", "[Errno", "Detail:")


def told(answer) -> str:
    """Return the words of a refused command, which a frame may break into lines."""
    assert answer.code == 2
    text = " ".join(answer.err.replace("│", " ").split())
    assert not any(word in text for word in _OF_LIBRARIES), text
    return text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("serve", "--bogus"), "No such option: --bogus"),
        (("lake-conf", "a.b", "--for", "trino"), "'trino' is not one of spark, pyiceberg, duckdb"),
        (("serve", "-D", "metrics-enabled=perhaps"), "metrics-enabled: expected true or false, not 'perhaps'"),
    ],
)
def test_a_slip_is_told_in_plain_words(command, arguments, said):
    assert said in told(command(*arguments))


def test_an_option_that_is_near_to_none_is_no_suggestion(command):
    assert "mean" not in told(command("serve", "--bogus"))


def _leaves(group, names=()):
    for name, each in group.commands.items():
        if hasattr(each, "commands"):
            yield from _leaves(each, (*names, name))
        else:
            yield (*names, name), each


@pytest.mark.parametrize(("names", "found"), [*_leaves(typer.main.get_command(app))], ids=str)
def test_a_missing_argument_has_the_name_of_the_usage(command, names, found):
    arguments = [each for each in found.params if each.param_type_name == "argument" and each.required]
    if arguments:
        shown = help_words.name(arguments[0])
        assert f"Missing argument '{shown}'" in told(command(*names))
        assert shown in command(*names, "-h").out


@pytest.mark.parametrize("option", ["--max-round-bytes"])
@pytest.mark.parametrize(
    ("size", "said"),
    [
        ("1gigs", "'1gigs' is not a size: expected a whole number and a unit (b, kb, mb, gb, tb), for example 10mb"),
        ("0", "'0' is not a size of at least 1b"),
        ("1e6", "'1e6' is not a size"),
    ],
)
def test_a_wrong_size_is_named_with_its_option(command, option, size, said):
    assert f"{option}: {said}" in told(command("tier", "a.b", option, size))


@pytest.mark.parametrize(("size", "number"), [("1gb", 1 << 30), ("512 kb", 512 << 10), ("7", 7)])
def test_a_size_may_have_a_unit(command, table, size, number):
    command("tables", "create", table, "-c", "id BIGINT")
    printed = command("tier", table, "--max-round-bytes", size, "--print-submit")
    assert printed.code == 0
    assert f"--max-round-bytes {number} " in " ".join(printed.out.split()) + " "


@pytest.mark.parametrize("wrong", ["missing.csv", "missing.parquet", "folder.csv"])
def test_nothing_is_written_if_one_of_the_files_is_missing(command, table, tmp_path: Path, wrong):
    command("tables", "create", table, "-c", "id BIGINT")
    good = tmp_path / "good.csv"
    good.write_text("id\n1\n")
    (tmp_path / "folder.csv").mkdir()
    said = told(command("put", table, good, tmp_path / wrong))
    assert f"{tmp_path / wrong} is a folder" in said or f"there is no file {tmp_path / wrong}" in said
    assert "rows" not in said
    assert command("scan", table, "--format", "csv").out.split() == ['"id"']


def test_an_empty_file_is_told(command, table, tmp_path: Path):
    command("tables", "create", table, "-c", "id BIGINT")
    (tmp_path / "empty.csv").touch()
    said = told(command("put", table, tmp_path / "empty.csv"))
    assert "empty.csv: it is empty: expected CSV whose first line names the columns" in said


def test_texts_that_mean_null_are_for_csv_only(command, table, tmp_path: Path):
    command("tables", "create", table, "-c", "id BIGINT")
    pq.write_table(pa.table({"id": [1]}), tmp_path / "rows.parquet")
    assert "--null-value" in told(command("put", table, tmp_path / "rows.parquet", "--null-value", "x"))


def test_a_bar_is_shown_only_if_the_number_of_rows_is_known(command, table, tmp_path: Path):
    command("tables", "create", table, "-c", "id BIGINT")
    (tmp_path / "rows.csv").write_text("id\n1\n2\n")
    pq.write_table(pa.table({"id": [1, 2, 3]}), tmp_path / "rows.parquet")
    of_csv = command("put", table, tmp_path / "rows.csv").err
    assert "2 rows" in of_csv
    assert "━" not in of_csv
    of_parquet = command("put", table, tmp_path / "rows.parquet").err
    assert "3 of 3 rows" in of_parquet
    assert "━" in of_parquet


def test_an_archive_that_cannot_be_written_is_told_before_spark_starts(command):
    refused = command("class-archive", "/proc/archive")
    assert "cannot write /proc/archive" in told(refused)
    assert "Starting" not in refused.err
