"""Commands with credentials: where their options stand, what they print of them, and when a role is asked for."""

from __future__ import annotations

import shlex

import pytest

from certificates import Authority
from engine_support import ServerThread, new_table
from fluss_tiering.cli.common.security import about_nothing
from fluss_tiering.client import TieringClient
from fluss_tiering.client.security import ClientSecurity
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.spark import maintenance_application
from fluss_tiering.spark.maintenance_options import CompactOptions, ExpireOptions, MaintainOptions
from fluss_tiering.spark.startup import session


@pytest.mark.parametrize("output", ["tokens.json", "./tokens.json", "link.json"])
def test_a_token_is_never_written_over_the_file_of_the_tokens(command, tmp_path, monkeypatch, output):
    monkeypatch.chdir(tmp_path)
    create = ("token", "create", "a", "--file", "tokens.json", "--role", "reader")
    assert command(*create).code == 0
    (tmp_path / "link.json").symlink_to("tokens.json")
    before = (tmp_path / "tokens.json").read_bytes()
    assert command(*create, "--output", output).refuses(2, "--output names tokens.json", "expected another file")
    assert (tmp_path / "tokens.json").read_bytes() == before


def test_the_printed_submit_has_the_paths_of_the_credentials(command, table, tmp_path, monkeypatch):
    authority = Authority(tmp_path / "my ca")
    (tmp_path / "token").write_text("flt_secret")
    monkeypatch.setenv("FLUSS_TIERING_TLS_CA", str(authority.cert))
    monkeypatch.setenv("FLUSS_TIERING_TOKEN_FILE", str(tmp_path / "token"))
    first, second, program, *_ = shlex.split(command("tier", table, "--print-submit").out)
    assert [first, second, program] == [
        f"FLUSS_TIERING_TLS_CA={authority.cert}",
        f"FLUSS_TIERING_TOKEN_FILE={tmp_path / 'token'}",
        "spark-submit",
    ]


def test_the_printed_submit_never_has_the_token(command, table, monkeypatch):
    monkeypatch.setenv("FLUSS_TIERING_TOKEN", "flt_secret")
    answer = command("tier", table, "--print-submit")
    assert answer.out.startswith("spark-submit ")
    assert "flt_secret" not in answer.out + answer.err
    assert "name the file with FLUSS_TIERING_TOKEN_FILE" in " ".join(answer.err.split())


@pytest.mark.parametrize(
    "arguments",
    [["tier"], ["compact"], ["expire"], ["maintain"], ["clean", "--delete"]],
    ids=lambda arguments: arguments[0],
)
def test_what_changes_lake_tables_asks_for_the_role_before_spark_starts(command, tmp_path, monkeypatch, arguments):
    reader = command("token", "create", "reader", "--file", tmp_path / "tokens", "--role", "reader").out.strip()
    admin = command("token", "create", "admin", "--file", tmp_path / "tokens", "--role", "admin").out.strip()
    monkeypatch.setattr(session, "SparkSession", None)
    with ServerThread(tmp_path / "data", tokens_file=tmp_path / "tokens") as running:
        with TieringClient(running.target, security=ClientSecurity(token=admin)) as client:
            path = new_table(client, [1]).path
        monkeypatch.setenv("FLUSS_TIERING_TOKEN", reader)
        answer = command(*arguments, str(path), "--server", running.target)
        assert answer.refuses(1, "token/reader may not call", "takes the role tierer")
        assert "Spark" not in answer.out + answer.err
        given = {"older_than": "1d"} if arguments == ["expire"] else {}
        if options := {"compact": CompactOptions, "expire": ExpireOptions, "maintain": MaintainOptions}.get(
            arguments[0]
        ):
            with pytest.raises(FlussTieringError, match="takes the role tierer"):
                maintenance_application.run(options(running.target, (path,), **given))


def test_who_proves_who_they_are_hears_that_there_may_be_tables_that_they_do_not_see(monkeypatch):
    answer = about_nothing("There is no table yet.", "There is no table that you may see.")
    assert answer == "There is no table yet."
    monkeypatch.setenv("FLUSS_TIERING_TOKEN", "flt_000000000000_secret")
    answer = about_nothing("There is no table yet.", "There is no table that you may see.")
    assert answer == "There is no table that you may see."
