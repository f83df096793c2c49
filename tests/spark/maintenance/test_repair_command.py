"""`verify` names files whose bounds hide rows, `repair` mends them, and rounds go on from the same offsets."""

from __future__ import annotations

import json
import struct

from spark_support import BY_KEY, Tiering, command, named

from fluss_tiering.lake.iceberg.catalog import IcebergCatalogs
from fluss_tiering.lake.iceberg.repair.check import WrongFile
from fluss_tiering.lake.iceberg.repair.live_files import live_entries, rewrite_bounds
from fluss_tiering.model.table import TableInfo
from fluss_tiering.spark.audit.verify import verify_table

KEY_ID = 1


def narrow(tiering: Tiering, table: TableInfo) -> list[str]:
    """Give the key of each file bounds that hold only 5, and return the files' locations."""
    lake = IcebergCatalogs(tiering.spark).find_table(table)
    assert lake is not None
    locations = [entry.file.location for entry in live_entries(lake.java_table)]
    bound = struct.pack("<i", 5)
    wrong = [WrongFile(location, (), (), {KEY_ID: (bound, bound)}) for location in locations]
    assert rewrite_bounds(lake.java_table, wrong) == len(locations)
    return locations


def test_verify_finds_and_repair_mends_bounds_that_hide_rows(tiering: Tiering, monkeypatch, capsys):  # D40
    run = command(tiering, monkeypatch)
    table = tiering.table(properties=BY_KEY)
    tiering.write(table, named(range(10), "first"))
    tiering.tier(table)
    tiering.write(table, named(range(3), "second"))
    tiering.tier(table)
    locations = narrow(tiering, table)

    # Spark reads all rows for a comparison, and the deletes of 0 to 2 no longer apply.
    audit = verify_table(tiering.client, tiering.spark, table, target=tiering.target)
    assert not audit.equal
    assert sorted(each.location for each in audit.wrong_files) == sorted(locations)
    assert {each.narrow_bounds for each in audit.wrong_files} == {("id",)}
    arguments = [str(table.path), "--server", tiering.target]
    assert run("verify", *arguments, "--json") == 1
    (told,) = json.loads(capsys.readouterr().out)
    assert {each["location"] for each in told["wrong_files"]} == set(locations)

    assert run("repair", *arguments) == 0
    assert "values beyond the bounds of id" in " ".join(capsys.readouterr().out.split())
    audit = verify_table(tiering.client, tiering.spark, table, target=tiering.target)
    assert audit.equal
    assert audit.wrong_files == ()
    assert tiering.lake_rows(table) == sorted({**named(range(10), "first"), **named(range(3), "second")}.items())

    assert tiering.tier(table).stats.rows == 0
    tiering.write(table, named(range(5, 7), "third"))
    assert tiering.tier(table).stats.rows == 2
    assert tiering.equal(table)
    assert run("repair", *arguments, "--json") == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert (told["wrong_files"], told["rebound_files"], told["error"]) == ([], 0, None)
