"""Pages that say what is promised: each promise has its test, and the rights that a page names are those of calls."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from code_blocks import ROOT

import behaviour
from cases import cases
from fluss_rights import page
from fluss_tiering.cli.main import app
from fluss_tiering.client.security import VARIABLES
from fluss_tiering.model.units import parse_memory_size
from fluss_tiering.server.settings.server_settings import _OF_OTHERS, setting_fields

PAGE = (ROOT / "docs" / "reference" / "behaviour.md").read_text()
NUMBERS = [match["number"] for match in behaviour.ROW.finditer(PAGE)]
SEEDS = [*(f"L{n}" for n in range(1, 25)), *(f"S{n}" for n in range(1, 29)), *(f"K{n}" for n in range(1, 18))]


def test_every_number_is_promised_once() -> None:
    assert [number for number in NUMBERS if not number.startswith("#")] == SEEDS
    assert len(set(NUMBERS)) == len(NUMBERS) == len(SEEDS) + 12


@cases("number", NUMBERS)
@pytest.mark.slow
def test_every_promise_is_shown_by_a_test(number: str) -> None:
    assert behaviour.citations(ROOT).get(number)


def test_every_promise_is_implemented_somewhere() -> None:
    assert behaviour.missing_places(PAGE, ROOT) == []


@pytest.mark.system
def test_pages_that_are_made_from_the_code_are_current() -> None:
    ran = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "docs.py"), "--check"],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_site_shows_two_columns_and_folds_the_others() -> None:
    shown = behaviour.with_folded_columns(PAGE)
    rows = [line for line in shown.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in rows} == {3}
    for row in behaviour.ROW.finditer(PAGE):
        (folded,) = [line for line in rows if line.startswith(f"| {row['number']} |")]
        assert all(row[part].strip() in folded for part in ("text", "where", "shown"))
    assert shown.count("<details>") == shown.count("</details>") == len(NUMBERS)


STATEMENT = re.compile(r"^CALL sys\.add_acl\(.*\);$", re.MULTILINE)


def test_the_statements_of_the_guide_are_those_of_the_page() -> None:
    tiering = page().partition("### Tiering, and reading")[2].partition("###")[0]
    guide = (ROOT / "docs" / "how-to" / "connect-a-cluster.md").read_text()
    assert STATEMENT.findall(guide) == STATEMENT.findall(tiering) != []


THREATS = ROOT / "SECURITY.md"
GUIDE = ROOT / "docs" / "how-to" / "secure-the-server.md"
DEPLOYED = [path for path in sorted((ROOT / "docs/deploy").rglob("*")) if path.is_file()]
PAGES = [ROOT / "README.md", THREATS, *sorted((ROOT / "docs").rglob("*.md")), *DEPLOYED]
SETTINGS = set(setting_fields())
NOT_SETTINGS = {
    *("airflow-provider-fluss", "fluss-tiering", "fluss-tiering-request-id", "lake-conf", "retry-after-ms"),
    *("spark-defaults.conf", "spark-submit", "spark.redaction.regex"),
}
"""Other words in backticks that have hyphens or dots."""


@cases("page", PAGES)
def test_pages_name_settings_and_variables_that_exist(page: Path) -> None:
    text = page.read_text()
    keys = re.findall(r"-D ([a-z][\w.-]*)=", text)
    assert {key for key in keys if re.sub(r"[.-]", "_", key) not in SETTINGS} == set()
    variables = set(re.findall(r"\bFLUSS_TIERING_[A-Z_]+\b", text)) - _OF_OTHERS
    assert {each for each in variables if each.removeprefix("FLUSS_TIERING_").lower() not in SETTINGS} == set()


@pytest.mark.parametrize("page", [THREATS, GUIDE], ids=lambda page: page.name)
def test_words_that_look_like_settings_are_settings(page: Path) -> None:
    words = set(re.findall(r"`([a-z]+(?:[.-][a-z]+)+)(?:=\w+)?`", page.read_text())) - NOT_SETTINGS
    assert words
    assert {word for word in words if re.sub(r"[.-]", "_", word) not in SETTINGS} == set()


def test_the_guide_names_the_defaults_of_limits() -> None:
    named = re.findall(r"`([a-z-]+)`, (\d+(?: MiB)?) \|", GUIDE.read_text())
    assert len(named) == 3
    fields = setting_fields()
    assert {name: parse_memory_size(number.replace(" MiB", "mb")) for name, number in named} == {
        name: fields[name.replace("-", "_")].get_default() for name, _ in named
    }


def test_a_metric_of_the_threat_model_is_one_that_the_server_exports() -> None:
    exported = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    named = set(re.findall(r"`(fluss_\w+)`", THREATS.read_text()))
    assert named
    assert {name for name in named if f"`{name}" not in exported} == set()


def test_nothing_is_called_missing_that_the_guide_explains() -> None:
    missing = THREATS.read_text().partition("### What is not there")[2].partition("\n###")[0]
    named = {each.lower() for each in re.findall(r"^- \*\*(?:An? )?(.+?)\.\*\*", missing, re.MULTILINE)}
    explained = {each.lower() for each in re.findall(r"^## (.+)$", GUIDE.read_text(), re.MULTILINE)}
    assert len(named) > 3
    assert {"audit log", "limits", "tls"} <= explained
    assert named & explained == set()


def test_the_reference_has_the_options_and_variables_of_guarded_clients() -> None:
    command_line = (ROOT / "docs" / "reference" / "cli.md").read_text()
    section = command_line.partition("\n## Global options\n")[2].partition("\n## ")[0]
    options = {name for each in typer.main.get_command(app).params for name in each.opts if "completion" not in name}
    assert {"--token-file", "--tls", "--tls-ca", "--tls-cert", "--tls-key", "--verbose"} <= options
    assert {name for name in options if f"`{name}`" not in section} == set()
    clients = (ROOT / "docs" / "reference" / "configuration.md").read_text().partition("\n## Clients\n")[2]
    assert {name for name in VARIABLES if f"| `{name}` |" not in clients} == set()
