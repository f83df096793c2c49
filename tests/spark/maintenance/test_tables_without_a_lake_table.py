"""What the commands say of a table of which nothing is in the lake: the same sentence, and the same exit code."""

from __future__ import annotations

import json

import pytest
from spark_support import Tiering, command, lake_server, named

from fluss_tiering.client import TieringClient
from fluss_tiering.spark.maintenance_application import run as run_application
from fluss_tiering.spark.maintenance_options import CompactOptions, ExpireOptions, MaintainOptions, VerifyOptions


def sentence(path: object) -> str:
    return (
        "nothing of the table is in the lake: no round has tiered it yet, or its lake table was dropped or renamed; "
        f"run `fluss-tiering tier {path}` first, which also says how to bring a missing lake table back"
    )


EVERY_COMMAND = [["verify"], ["compact"], ["expire"], ["clean"], ["repair"], ["maintain"], ["maintain", "--dry-run"]]


@pytest.mark.parametrize("arguments", EVERY_COMMAND, ids=" ".join)
def test_a_named_table_is_an_error(tiering: Tiering, monkeypatch, capsys, arguments):
    table = tiering.table()
    tiering.write(table, named(range(3), "row"))
    run = command(tiering, monkeypatch)
    assert run(*arguments, str(table.path), "--server", tiering.target) == 1
    printed = capsys.readouterr()
    assert f"{table.path}: {sentence(table.path)}\n" in printed.out
    assert "no orphan files" not in printed.out
    assert "skipped" not in printed.err
    assert run(*arguments, str(table.path), "--json", "--server", tiering.target) == 1
    (told,) = json.loads(capsys.readouterr().out)
    assert told["error"] == sentence(table.path)


@pytest.mark.system
def test_a_table_that_nobody_named_is_skipped(tmp_path, spark, monkeypatch, capsys):
    # The server is not the shared one: these commands go over all of its tables.
    server = lake_server(tmp_path).start()
    try:
        with TieringClient(server.target) as client:
            alone = Tiering(client, spark, server.target)
            never, tiered = (alone.table(properties={"table.datalake.auto-compaction": "true"}) for _ in range(2))
            alone.write(tiered, named(range(3), "row"))
            alone.tier(tiered)
            run = command(alone, monkeypatch)
            for arguments in (["clean"], ["maintain"], ["maintain", "--all"], ["maintain", "--all", "--dry-run"]):
                assert run(*arguments, "--server", server.target) == 0, arguments
                printed = capsys.readouterr()
                assert f"{never.path}: skipped: {sentence(never.path)}\n" in printed.err, arguments
                assert sentence(never.path) not in printed.out, arguments
                assert f"{tiered.path}: skipped" not in printed.err, arguments
    finally:
        server.stop()


def test_a_lake_table_without_snapshots_is_empty(tiering: Tiering, monkeypatch, capsys):
    table = tiering.table()
    tiering.tier(table)
    assert tiering.snapshots(table) == []
    run = command(tiering, monkeypatch)
    for arguments in EVERY_COMMAND:
        assert run(*arguments, str(table.path), "--server", tiering.target) == 0, arguments
        printed = capsys.readouterr()
        assert "nothing of the table is in the lake" not in printed.out + printed.err, arguments
        assert run(*arguments, str(table.path), "--json", "--server", tiering.target) == 0, arguments
        (told,) = json.loads(capsys.readouterr().out)
        assert told["error"] is None if "error" in told else arguments == ["clean"], arguments
    for options in (CompactOptions, ExpireOptions, VerifyOptions, MaintainOptions):
        assert run_application(options(tiering.target, (table.path,)), tiering.spark) == {}, options
    # The rows that are there now were not compared with anything.
    tiering.write(table, named(range(3), "row"))
    assert run("verify", str(table.path), "--server", tiering.target) == 1
    assert f"{table.path}: {sentence(table.path)}\n" in capsys.readouterr().out


def test_the_application_has_the_same_rule(tiering: Tiering):
    table = tiering.table(properties={"table.datalake.auto-compaction": "true"})
    for options in (CompactOptions, ExpireOptions, VerifyOptions, MaintainOptions):
        failed = run_application(options(tiering.target, (table.path,)), tiering.spark)
        assert failed == {str(table.path): sentence(table.path)}, options
    dry_run = MaintainOptions(tiering.target, (table.path,), dry_run=True)
    assert run_application(dry_run, tiering.spark) == {str(table.path): sentence(table.path)}
    assert str(table.path) not in run_application(MaintainOptions(tiering.target, ()), tiering.spark)
