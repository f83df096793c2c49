"""The units of systemd, judged by systemd."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fluss_tiering.server.settings.server_settings import load_settings, setting_fields
from needs import needs

DEPLOY = Path(__file__).resolve().parents[2] / "docs" / "deploy"
UNIT = "fluss-tiering.service"
UNITS = [UNIT, "fluss-tiering-credentials.path", "fluss-tiering-credentials.service"]
DROP_INS = ["mutual-tls.conf", "openid-connect.conf"]
PAGES = sorted((DEPLOY.parent).rglob("*.md"))
WITHOUT_TOKENS = [{}, {"oidc_issuer": "https://login.example.com", "oidc_audience": "fluss-tiering"}]
"""What the file of the environment adds to each drop-in."""
MOST_EXPOSED = "15"
"""The exposure that systemd may find, in tenths; 100 for a service without a sandbox."""

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="this machine has no systemd-analyze"),
]


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", *arguments], check=False, capture_output=True, text=True)


@pytest.fixture
@needs("system")
def units(tmp_path: Path) -> Path:
    """The units, with a command that is on this machine."""
    program = Path(sys.executable).with_name("fluss-tiering")
    for name in UNITS:
        text = (DEPLOY / name).read_text().replace("/opt/fluss-tiering/bin/fluss-tiering", str(program))
        (tmp_path / name).write_text(text)
    return tmp_path


def test_systemd_takes_the_units(units: Path) -> None:
    checked = analyze("verify", *(units / name for name in UNITS))
    assert checked.returncode == 0, checked.stderr
    assert not checked.stderr


def test_systemd_finds_the_sandbox_tight(units: Path) -> None:
    checked = analyze("security", "--offline=true", "--no-pager", f"--threshold={MOST_EXPOSED}", units / UNIT)
    if "offline" in checked.stderr:
        pytest.skip("this version of systemd-analyze cannot judge a unit that is not installed")
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("name", DROP_INS)
def test_systemd_takes_the_unit_with_a_drop_in(units: Path, name: str) -> None:
    folder = units / f"{UNIT}.d"
    folder.mkdir()
    program = Path(sys.executable).with_name("fluss-tiering")
    text = (DEPLOY / name).read_text().replace("/opt/fluss-tiering/bin/fluss-tiering", str(program))
    (folder / name).write_text(text)
    checked = analyze("verify", units / UNIT)
    assert (checked.returncode, checked.stderr) == (0, "")
    (folder / name).write_text(text.replace("ExecStart=", "ExecBegin="))
    assert "ExecBegin" in analyze("verify", units / UNIT).stderr, "systemd does not read the drop-in"


@pytest.mark.parametrize("name", [UNIT, *DROP_INS])
def test_the_server_is_given_each_credential_by_a_setting(name: str) -> None:
    text = (DEPLOY / name).read_text().replace("\\\n", " ")
    loaded = set(re.findall(r"^LoadCredential=([^:\n]+):/", text, re.MULTILINE))
    given = dict(re.findall(r"-D ([\w-]+)=\$\{CREDENTIALS_DIRECTORY\}/(\S+)", text))
    assert loaded == set(given.values()) != set()
    assert {each.replace("-", "_") for each in given} <= set(setting_fields())


@pytest.mark.parametrize(("name", "settings"), list(zip(DROP_INS, WITHOUT_TOKENS, strict=True)))
def test_a_drop_in_lets_the_server_start_without_tokens(name: str, settings: dict[str, str]) -> None:
    given = re.findall(r"-D ([\w-]+)=\$\{CREDENTIALS_DIRECTORY\}/(\S+)", (DEPLOY / name).read_text())
    loaded = load_settings(host="10.0.0.5", **{key.replace("-", "_"): file for key, file in given}, **settings)
    assert loaded.asks_callers
    assert loaded.tokens_file is None


def test_the_server_is_restarted_for_each_credential_that_it_loads() -> None:
    texts = [(DEPLOY / name).read_text() for name in (UNIT, *DROP_INS)]
    loaded = {path for text in texts for path in re.findall(r"^LoadCredential=[^:\n]+:(.+)$", text, re.MULTILINE)}
    watched = re.findall(r"^PathChanged=(.+)$", (DEPLOY / UNITS[1]).read_text(), re.MULTILINE)
    assert sorted(watched) == sorted(loaded) != []


def test_the_unit_opens_each_folder_that_the_documentation_tells_the_server_to_write_to() -> None:
    unit = (DEPLOY / UNIT).read_text()
    named = {folder for page in PAGES for folder in re.findall(r"/var/(\w+)/fluss-tiering\b", page.read_text())}
    assert named == {"cache", "lib", "log"}
    for folder, setting in {"lib": "StateDirectory", "cache": "CacheDirectory", "log": "LogsDirectory"}.items():
        assert f"\n{setting}=fluss-tiering\n" in unit, folder
