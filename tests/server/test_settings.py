"""The server's settings: defaults, environment, and messages for wrong ones."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from refusals import refused

from cases import cases
from engine_support import table_info
from fluss_tiering.client import DEFAULT_PORT
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.app import choose_backend
from fluss_tiering.server.core.tiering.policy import LakeOptions
from fluss_tiering.server.settings.server_settings import (
    load_settings,
    setting_fields,
    settings_from_keys,
    unknown_variables,
)


def test_defaults_are_those_of_the_sources() -> None:  # L9, S4
    settings = load_settings()
    assert (settings.host, settings.port) == ("127.0.0.1", DEFAULT_PORT)
    assert settings.kv_snapshot_lease_expiration_check_interval_ms == 10 * 60_000
    assert (settings.heartbeat_timeout_ms, settings.heartbeat_check_interval_ms) == (120_000, 15_000)
    assert (settings.kv_snapshot_interval_ms, settings.kv_snapshot_num_retained) == (10 * 60_000, 2)
    assert settings.data_dir.is_absolute()


def test_the_environment_sets_what_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUSS_TIERING_PORT", "4000")
    monkeypatch.setenv("FLUSS_TIERING_HEARTBEAT_TIMEOUT", "30 s")
    monkeypatch.setenv("FLUSS_TIERING_LAKE_CATALOG", json.dumps({"type": "rest", "uri": "http://lake"}))
    settings = load_settings(port=5000)
    assert (settings.port, settings.heartbeat_timeout_ms) == (5000, 30_000)
    assert settings.lake_catalog == {"type": "rest", "uri": "http://lake"}


def test_what_counts_bytes_takes_units() -> None:
    names = [name for name in setting_fields() if "bytes" in name]
    assert "max_request_bytes" in names
    for name in names:
        assert getattr(load_settings(**{name: "3 mb"}), name) == 3 << 20
        assert getattr(load_settings(**{name: "4096"}), name) == 4096


def test_settings_are_given_by_the_keys_that_fluss_has_for_them() -> None:
    given = settings_from_keys(
        ["kv.snapshot.num-retained=3", "kv.snapshot.interval = 5min", 'lake-catalog={"type": "x"}']
    )
    settings = load_settings(**given)
    assert (settings.kv_snapshot_num_retained, settings.kv_snapshot_interval_ms) == (3, 5 * 60_000)
    assert settings.lake_catalog == {"type": "x"}


@pytest.mark.parametrize("pair", ["kv.snapshot.intervall=5min", "port", "=1"])
def test_an_unknown_key_is_refused(pair: str) -> None:
    with pytest.raises(
        FlussTieringError, match=r"is not a setting( \(did you mean kv-snapshot-interval\?\))?: expected KEY=VALUE"
    ):
        settings_from_keys([pair])


def test_a_key_that_is_almost_one_is_told() -> None:
    with pytest.raises(FlussTieringError, match=r"'token-file' is not a setting \(did you mean tokens-file\?\)"):
        settings_from_keys(["token-file=/etc/tokens.json"])


def test_a_wrong_setting_is_named_as_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FlussTieringError) as refused:
        load_settings(**settings_from_keys(["tokens-file="]))
    assert "server: tokens-file: the path is empty: expected a file" in refused.value.message
    monkeypatch.setenv("FLUSS_TIERING_TOKENS_FILE", "")
    with pytest.raises(FlussTieringError) as refused:
        load_settings()
    assert "server: FLUSS_TIERING_TOKENS_FILE: the path is empty: expected a file" in refused.value.message


@pytest.mark.parametrize(
    ("name", "value", "named"),
    [
        ("PORT", "70000", "expected a whole number from 0 to 65535, not '70000'"),
        ("METRICS_PORT", "x", "expected a whole number from 0 to 65535, not 'x'"),
        ("KEPT_ROUNDS", "abc", "expected a whole number from 1 to 2147483647, not 'abc'"),
        ("LEADER_LEASE", "1ms", "expected a duration of at least 1s, not '1ms'"),
        ("MAX_MESSAGE_BYTES", "5gb", "expected a size above 0 and below 2gb, not '5gb'"),
        ("METRICS_ENABLED", "maybe", "expected true or false, not 'maybe'"),
        ("ADVERTISED_ADDRESS", "x", "expected HOST:PORT, not 'x'"),
        ("HOST", "", "the text is empty: expected at least one character"),
        ("HEARTBEAT_TIMEOUT", "soon", "whole number and a unit"),
        ("KV_SNAPSHOT_INTERVAL", "0s", "expected a duration above 0, not '0s'"),
        ("DATA_DIR", "", "the path is empty"),
        ("LOG_FORMAT", "xml", "'logfmt' or 'json'"),
        ("LAKE_CATALOG", "type=rest", "it is not JSON at its character 1: expected a JSON object"),
        ("LAKE_CATALOG", "[1]", "it is JSON of another kind: expected a JSON object"),
        ("LAKE_CATALOG", '{"type": 1}', "the value of 'type' is of another kind: expected a text"),
        ("LAKE_CATALOG", '{"uri": "http://lake"}', "neither 'type' nor 'catalog-impl'"),
    ],
)
def test_wrong_settings_are_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str, named: str) -> None:
    monkeypatch.setenv(f"FLUSS_TIERING_{name}", value)
    with pytest.raises(FlussTieringError) as refused:
        load_settings()
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert name.lower() in refused.value.message.lower()
    assert named in refused.value.message


@cases("name", [name for name, field in setting_fields().items() if field.annotation is int])
@cases("value", ["99999999999", str(2**70), "-1", "1e3"])
def test_numbers_that_no_part_of_the_server_can_take_are_refused(name: str, value: str) -> None:
    with refused(ErrorCode.INVALID_REQUEST, f"{name.replace('_', '-')}: "):
        load_settings(**{name: value})


@cases("text", ['{"s3.secret-access-key": "hunter2"}', "hunter2", '["hunter2"]', '{"type": ["hunter2"]}'])
def test_what_is_given_for_the_lake_catalog_is_not_shown(monkeypatch: pytest.MonkeyPatch, text: str) -> None:  # S11
    with pytest.raises(FlussTieringError) as refused:
        load_settings(lake_catalog=text)
    assert "hunter2" not in refused.value.message
    monkeypatch.setenv("FLUSS_TIERING_LAKE_CATALOG", text)
    with pytest.raises(FlussTieringError) as refused:
        load_settings()
    assert "hunter2" not in refused.value.message


@pytest.mark.slow
@cases("name", setting_fields())
@cases("value", ["", "abc", "-1", "[1]", '{"a": [1]}', "1e3", "99999999999gb"])
def test_no_setting_is_refused_in_the_words_of_the_library(name: str, value: str) -> None:
    message = ""
    try:
        load_settings(**{name: value})
    except FlussTieringError as error:
        message = error.message
    assert not re.search("Input should|Value error|pydantic|String should|unable to parse", message)


def test_the_lake_is_a_jdbc_catalog_in_the_data_folder_by_default(tmp_path: Path) -> None:
    table = choose_backend(load_settings(data_dir=tmp_path)).catalog.complete(table_info(1))
    assert table.lake_catalog_properties == {
        "type": "jdbc",
        "name": "fluss_lake",
        "uri": f"jdbc:sqlite:{tmp_path}/lake/catalog.db?busy_timeout=30000",
        "jdbc.schema-version": "V1",
        "warehouse": f"file:{tmp_path}/lake/warehouse",
    }


def test_a_tables_own_catalog_properties_win(tmp_path: Path) -> None:
    settings = load_settings(data_dir=tmp_path, lake_catalog={"type": "rest", "uri": "http://a"})
    properties = choose_backend(settings).catalog.of(
        {"table.datalake.iceberg.uri": "http://b", "table.datalake.freshness": "1s"}
    )
    assert properties == {"type": "rest", "uri": "http://b"}


def test_lake_options_of_a_table() -> None:  # S2
    assert LakeOptions.of({}) == LakeOptions(enabled=False, freshness_ms=3 * 60_000, due_unchanged=False)
    enabled = LakeOptions.of({"table.datalake.enabled": "TRUE", "table.datalake.freshness": "500ms"})
    assert enabled == LakeOptions(enabled=True, freshness_ms=500, due_unchanged=False)


@pytest.mark.parametrize(("option", "value"), [("enabled", "yes"), ("freshness", "3"), ("freshness", "fast")])
def test_wrong_lake_options_name_the_option(option: str, value: str) -> None:
    with refused(ErrorCode.INVALID_TABLE, f"table.datalake.{option}", value):
        LakeOptions.of({f"table.datalake.{option}": value})


def test_files_set_what_the_environment_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUSS_TIERING_SECRETS_DIR", str(tmp_path))
    monkeypatch.setenv("FLUSS_TIERING_PORT", "4000")
    (tmp_path / "FLUSS_TIERING_PORT").write_text("5000")
    (tmp_path / "FLUSS_TIERING_STORE_URL").write_text("postgresql://a:secret@db/tiering\n")
    (tmp_path / "tokens.json").write_text("{}")
    settings = load_settings()
    assert settings.port == 4000
    assert settings.store_url is not None
    assert settings.store_url.get_secret_value().endswith("@db/tiering")
    (tmp_path / "FLUSS_TIERING_STORE_URI").write_text("x")
    for name in ("store-url", "fluss_tiering_host"):
        (tmp_path / name).write_text("x")
    assert unknown_variables(os.environ) == {
        "FLUSS_TIERING_STORE_URI": "FLUSS_TIERING_STORE_URL",
        "fluss_tiering_host": "FLUSS_TIERING_HOST",
        "store-url": "FLUSS_TIERING_STORE_URL",
    }
    (tmp_path / "FLUSS_TIERING_STORE_URL").write_text("u:hunter2@h:5432/db")
    with pytest.raises(FlussTieringError, match="not one of PostgreSQL") as refused:
        load_settings()
    assert "hunter2" not in refused.value.message
    (tmp_path / "FLUSS_TIERING_STORE_URL").unlink()
    (tmp_path / "FLUSS_TIERING_STORE_URL").symlink_to("nothing")
    with pytest.raises(FlussTieringError, match="FLUSS_TIERING_STORE_URL cannot be read: No such file"):
        load_settings()
    (tmp_path / "FLUSS_TIERING_STORE_URL").unlink()
    (tmp_path / "FLUSS_TIERING_LAKE_CATALOG").write_bytes(b"\xff")
    with pytest.raises(FlussTieringError, match=r"FLUSS_TIERING_LAKE_CATALOG cannot be read: .*codec"):
        load_settings()
    monkeypatch.setenv("FLUSS_TIERING_SECRETS_DIR", str(tmp_path / "tokens.json"))
    with pytest.raises(FlussTieringError, match=r"is no folder: expected one with files"):
        load_settings()


def test_variables_that_are_no_settings_are_named():
    environment = ["FLUSS_TIERING_KV_SNAPSHOT_NUM_RETAIN", "FLUSS_TIERING_PORT", "fluss_tiering_host", "PATH"]
    others = ["FLUSS_TIERING_SERVER", "FLUSS_TIERING_SPARK_JARS", "FLUSS_TIERING_SOMETHING_ALTOGETHER_ELSE"]
    assert unknown_variables(dict.fromkeys([*environment, *others], "")) == {
        "FLUSS_TIERING_KV_SNAPSHOT_NUM_RETAIN": "FLUSS_TIERING_KV_SNAPSHOT_NUM_RETAINED",
        "FLUSS_TIERING_SOMETHING_ALTOGETHER_ELSE": None,
    }
