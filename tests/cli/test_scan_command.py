"""`fluss-tiering scan`: what is written, for people and for programs, and how it ends."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from fluss_tiering.model.table import Column, DataType, TableDescriptor, TablePath, WriteKind

COLUMNS = tuple(
    Column(name, DataType.parse(text))
    for name, text in {
        "id": "BIGINT NOT NULL",
        "name": "STRING",
        "price": "DECIMAL(20, 2)",
        "ratio": "DOUBLE",
        "open": "BOOLEAN",
        "day": "DATE",
        "at": "TIMESTAMP(9)",
        "seen": "TIMESTAMP_LTZ(3)",
        'odd "name"': "INT",
        "level": "TINYINT",
        "year": "SMALLINT",
        "share": "FLOAT",
        "code": "CHAR(3)",
        "mac": "BINARY(2)",
        "blob": "BYTES",
        "noon": "TIME(3)",
        "tags": "ARRAY<STRING>",
        "days": "ARRAY<ROW<day DATE, noon TIME(3), at TIMESTAMP(9)>>",
        "place": "ROW<spot MAP<STRING, DOUBLE>, seen TIMESTAMP_LTZ(3)>",
    }.items()
)
NASTY = 'a "quoted" \\ back\nslash\ttab \x01 é ☃ 😀,;'
ROWS = pa.table(
    {
        "id": [1, 2, 3],
        "name": pa.array([NASTY, None, ""]),
        "price": pa.array([Decimal("1.50"), None, Decimal("-123456789012345678.90")], pa.decimal128(20, 2)),
        "ratio": pa.array([0.1, None, float("inf")]),
        "open": pa.array([True, None, False]),
        "day": pa.array([20_000, None, -1], pa.date32()),
        "at": pa.array([1_700_000_000_123_456_789, None, -1], pa.timestamp("ns")),
        "seen": pa.array([1_700_000_000_123, None, 0], pa.timestamp("ms")),
        'odd "name"': pa.array([7, None, -7], pa.int32()),
        "level": pa.array([-128, None, 127], pa.int8()),
        "year": pa.array([-32768, None, 32767], pa.int16()),
        "share": pa.array([0.1, None, float("-inf")], pa.float32()),
        "code": pa.array(['a"ö', None, ""]),
        "mac": pa.array([b"\x00\xff", None, b"ab"], pa.binary(2)),
        "blob": pa.array([b"\x00,\n\xff", None, b""], pa.binary()),
        "noon": pa.array([43_200_001, None, 0], pa.time32("ms")),
        "tags": pa.array([["ö", None], None, []], pa.list_(pa.string())),
        "days": pa.array(
            # Both before and after the years that Python has.
            [[{"day": 10**7, "noon": 1, "at": 1}, {"day": -(10**6), "noon": None, "at": None}], None, [None]],
            pa.list_(pa.struct({"day": pa.date32(), "noon": pa.time32("ms"), "at": pa.timestamp("ns")})),
        ),
        "place": pa.array(
            [{"spot": [("x", 0.5), ("y", None)], "seen": 1_700_000_000_123}, None, {"spot": None, "seen": None}],
            pa.struct({"spot": pa.map_(pa.string(), pa.float64()), "seen": pa.timestamp("ms")}),
        ),
    }
)


def create(client, table: str, *, primary_key: bool = True, num_buckets: int = 1) -> TablePath:
    path = TablePath.parse(table)
    key = ("id",) if primary_key else ()
    client.create_table(path, TableDescriptor(COLUMNS, key, key, num_buckets))
    return path


def named_rows(count: int, name: str) -> pa.Table:
    """Rows that have this name, and NULL in all other columns but the key."""
    given = {"id": range(count), "name": [name] * count}
    return pa.table({each.name: given.get(each.name, pa.nulls(count, each.type)) for each in ROWS.schema})


@pytest.fixture(params=[True, False], ids=["primary-key table", "log table"])
def filled(request, client, table) -> str:
    path = create(client, table, primary_key=request.param)
    list(client.write_rows(path, WriteKind.UPSERT if request.param else WriteKind.APPEND, [ROWS]))
    return table


def program(server, *arguments: str, **options) -> subprocess.CompletedProcess[bytes]:
    command = [str(Path(sys.executable).with_name("fluss-tiering")), "scan", *arguments, "--server", server.target]
    return subprocess.run(command, capture_output=True, timeout=60, check=False, **options)


def test_json_lines_hold_every_value(command, filled):
    lines = [json.loads(line) for line in command("scan", filled, "--format", "json").out.splitlines()]
    one, two, three = sorted(lines, key=lambda line: line["id"])
    assert one == {
        "id": 1,
        "name": NASTY,
        "price": 1.5,
        "ratio": 0.1,
        "open": True,
        "day": "2024-10-04",
        "at": "2023-11-14T22:13:20.123456789",
        "seen": "2023-11-14T22:13:20.123Z",
        'odd "name"': 7,
        "level": -128,
        "year": -32768,
        "share": 0.1,
        "code": 'a"ö',
        "mac": "00ff",
        "blob": "002c0aff",
        "noon": "12:00:00.001",
        "tags": ["ö", None],
        "days": [
            {"day": "29349-01-26", "noon": "00:00:00.001", "at": "1970-01-01T00:00:00.000000001"},
            {"day": "-0768-02-04", "noon": None, "at": None},
        ],
        "place": {"spot": [["x", 0.5], ["y", None]], "seen": "2023-11-14T22:13:20.123Z"},
    }
    assert datetime.fromisoformat(one["seen"]) == datetime.fromtimestamp(1_700_000_000.123, UTC)
    assert two == {"id": 2, **dict.fromkeys([column.name for column in COLUMNS[1:]])}
    assert (three["name"], three["ratio"], three["open"]) == ("", "Infinity", False)
    assert (three["share"], three["blob"]) == ("-Infinity", "")
    assert (three["tags"], three["place"]) == ([], {"spot": None, "seen": None})
    assert '"price":-123456789012345678.90' in command("scan", filled, "--format", "json").out


def test_csv_is_read_back_as_it_was(command, filled):
    out = command("scan", filled).out  # CSV is the default where nobody looks on.
    convert = pa.csv.ConvertOptions(
        column_types={
            "price": pa.decimal128(20, 2),
            "name": pa.string(),
            "seen": pa.timestamp("ms", "UTC"),
            "noon": pa.time32("ms"),
        },
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    parse = pa.csv.ParseOptions(newlines_in_values=True)
    read = pa.csv.read_csv(io.BytesIO(out.encode()), convert_options=convert, parse_options=parse).sort_by("id")
    for name in ("id", "name", "price", "open", "day", "at", "level", "year", "noon"):
        assert read[name].to_pylist() == ROWS[name].to_pylist(), name
    assert read["seen"].cast(pa.int64()).to_pylist() == ROWS["seen"].cast(pa.int64()).to_pylist()


def test_chosen_columns_come_in_their_order(command, filled):
    out = command("scan", filled, "--columns", "open, id", "--format", "json").out
    lines = [json.loads(line) for line in out.splitlines()]
    assert [list(line) for line in lines] == [["open", "id"]] * 3
    assert sorted((line["id"], line["open"]) for line in lines) == [(1, True), (2, None), (3, False)]
    assert command("scan", filled, "--columns", "id").out.splitlines()[0] == '"id"'
    assert command("scan", filled, "--columns", "id,nope").refuses(2, filled, "no column 'nope'")
    assert command("scan", filled, "--columns", "id,id").refuses(2, "'id'", "twice")
    assert command("scan", filled, "--columns", ",").refuses(2, "--columns ','")
    assert command("scan", filled, "--columns", "").refuses(2, "--columns is empty")


@pytest.mark.system
def test_arrow_has_the_tables_schema(server, client, filled):
    done = program(server, filled, "--format", "arrow")
    assert (done.returncode, done.stderr) == (0, b"")
    read = pa.ipc.open_stream(done.stdout).read_all().sort_by("id")
    assert read.cast(ROWS.schema).equals(ROWS)


def test_a_table_for_people(command, client, table):
    names = ["day", "mac", "noon"]
    few = tuple(column for column in COLUMNS if column.name in names)
    client.create_table(TablePath.parse(table), TableDescriptor(few))
    list(client.write_rows(TablePath.parse(table), WriteKind.APPEND, [ROWS.select(names)]))
    out = command("scan", table, "--format", "table").out
    assert "2024-10-04" in out
    assert "00ff" in out
    assert "12:00:00.001" in out
    assert "–" in out  # what is NULL


def test_limits(command, client, table):
    path = create(client, table, num_buckets=3)
    list(client.write_rows(path, WriteKind.UPSERT, [named_rows(500, "x")]))
    assert len(command("scan", table, "-f", "json", "--limit", "7").out.splitlines()) == 7
    assert len(command("scan", table, "-f", "json").out.splitlines()) == 500
    answer = command("scan", table, "--format", "table")
    assert answer.out.count(" x ") == 100
    assert "--limit" in answer.err
    answer = command("scan", table, "--format", "table", "--limit", "3")
    assert (answer.out.count(" x "), answer.err) == (3, "")
    assert command("scan", table, "--limit", "0").code == 2
    for row_format in ("csv", "json", "table"):
        answer = command("scan", table, "--format", row_format, "--limit", str(2**63))
        assert answer.refuses(2, f"limit {2**63}: expected a number from 1 to {2**63 - 1}")


def test_an_empty_table_is_no_error(command, client, table):
    create(client, table, num_buckets=2)
    assert command("scan", table).out.count("\n") == 1  # the header
    assert command("scan", table, "-f", "json").out == ""
    assert "no rows" in command("scan", table, "-f", "table").out


@pytest.mark.slow
def test_what_cannot_be_scanned_is_named(command):
    assert command("scan", "cli.nowhere").refuses(1, "cli.nowhere", "does not exist")
    assert command("scan", "nowhere").code == 2
    assert command("scan", "cli.nowhere", "--format", "xml").code == 2
    assert command("scan", "cli.nowhere", "--server", "127.0.0.1:1").refuses(2, "127.0.0.1:1")


@pytest.mark.system
@pytest.mark.parametrize("row_format", ["csv", "json", "arrow"])
def test_a_reader_that_has_enough_ends_it_quietly(server, client, table, row_format):
    path = create(client, table)
    list(client.write_rows(path, WriteKind.UPSERT, [named_rows(20_000, "x" * 100)]))
    script = Path(sys.executable).with_name("fluss-tiering")
    done = subprocess.run(
        [
            "bash",
            "-c",
            f"{script} scan {table} --server {server.target} -f {row_format} | head -c 100; exit ${{PIPESTATUS[0]}}",
        ],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr, len(done.stdout)) == (141, b"", 100)
