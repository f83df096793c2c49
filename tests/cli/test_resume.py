"""What the command shows of failed tables, how it ends their rest, and how it alters options: S13, S19, S20."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from engine_support import new_table
from fluss_tiering.model.tiering import HeartbeatEntry

PROGRAM = str(Path(sys.executable).with_name("fluss-tiering"))


def fail(client, path, times=1):
    for _ in range(times):
        (claim,) = client.claim_tables([path], "cli-lease", None, "driver-1")
        client.heartbeat(failed=[HeartbeatEntry(claim.table_id, claim.tiering_epoch, "no space left\nat line 2")])


def test_a_parked_table_says_how_to_go_on(command, client):  # S19
    table = new_table(client)
    fail(client, table.path, times=10)
    answer = command("status", table.path)
    assert " Parked " in answer.out
    assert f"then run `fluss-tiering resume {table.path}`" in answer.out
    (status,) = json.loads(command("status", table.path, "--json").out)
    assert (status["parked"], status["next_retry_time"], status["consecutive_failures"]) == (True, None, 10)
    (refused,) = client.claim_tables([table.path], "cli-lease", None, "driver-1")
    assert "no space left;" in refused.message
    assert str(table.path) in command("resume", "--parked").out
    (status,) = json.loads(command("status", table.path, "--json").out)
    assert (status["status"], status["parked"], status["consecutive_failures"]) == ("Pending", False, 0)


def test_each_table_is_resumed_on_its_own(command, client):  # S19
    failed, healthy = new_table(client), new_table(client)
    fail(client, failed.path)
    answer = command("resume", healthy.path, "cli.nowhere", failed.path)
    assert answer.code == 1
    assert f"{healthy.path} has not failed: it is Scheduled." in answer.out
    assert "cli.nowhere: table cli.nowhere does not exist" in answer.out
    assert f"{failed.path} is Pending." in answer.out
    assert command("resume").refuses(2, "--parked")
    assert command("resume", failed.path, "--parked").refuses(2, "--parked")


def test_options_are_set_and_reset(command, client):  # S20
    table = new_table(client, freshness="3min")
    answer = command("tables", "alter", table.path, "--set", "table.datalake.freshness=1h", "--set", "team=a")
    assert re.search("table.datalake.freshness +1h", answer.out)
    assert command("tables", "alter", table.path, "--reset", "table.datalake.freshness").code == 0
    (info,) = client.get_tables([table.path])
    layout = {"table.datalake.layout": "clean"}
    assert info.descriptor.properties == {"table.datalake.enabled": "true", "team": "a", **layout}
    for arguments, words in (
        ((), ("nothing to change", "--set KEY=VALUE", "--reset KEY")),  # D30
        (("--set", "a.b=1", "--set", "a.b=2"), ("--set sets 'a.b' twice",)),
        (("--set", "team"), ("--set 'team'", "KEY=VALUE")),
        (("--set", "team=b", "--reset", "team"), ("'team'",)),
        (("--set", "table.datalake.freshness=soon"), ("'soon'",)),
        (("--set", "table.log.arrow.compression.type=NONE"), ("cannot be altered", "rows are stored")),
        (("--set", "iceberg.format-version=2"), ("cannot be altered", "in the lake")),
        (
            ("--set", "team=b", "--add-column", "note STRING"),
            ("options and columns are changed by a command each", "--add-column"),
        ),
        (("--add-column", "note"), ("--add-column 'note'", "NAME TYPE")),
        (("--change-type", "name TEXT"), ("--change-type 'name TEXT'", "is not a type")),
        (("--rename-column", "name"), ("--rename-column 'name'", "OLD=NEW")),
        (("--drop-column", "nmae"), ("has no column 'nmae'",)),
    ):
        assert command("tables", "alter", table.path, *arguments).refuses(2, *words)
    assert command("tables", "alter", "cli.nowhere", "--set", "a=b").refuses(1, "cli.nowhere")
    assert client.get_tables([table.path]) == [info]
    changes = ("--add-column", "name BIGINT", "--drop-column", "name", "--add-column", "`a note` STRING")
    assert re.search("a note +STRING", command("tables", "alter", table.path, *changes).out)
    changes = ("--rename-column", "a note=b note", "--rename-column", "name=a note", "--add-column", "x FLOAT")
    assert command("tables", "alter", table.path, *changes).code == 0
    assert command("tables", "alter", table.path, "--change-type", "x DOUBLE").code == 0
    (info,) = client.get_tables([table.path])
    columns = [(column.name, str(column.data_type)) for column in info.descriptor.columns]
    assert columns[1:] == [("a note", "BIGINT"), ("b note", "STRING"), ("x", "DOUBLE")]
