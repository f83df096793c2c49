"""The baseline of the gRPC API: `make lint` fails if a change would break clients of the last release."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROTOS = Path(__file__).resolve().parents[2] / "protos"
TIERING = "fluss_tiering/v1/lake_tiering.proto"


CANCEL = """\
  rpc CancelTiering(CancelTieringRequest) returns (CancelTieringResponse) {
    option (required_role) = PB_ROLE_TIERER;
  }
"""


@pytest.fixture
def protos(tmp_path: Path) -> Path:
    """A copy of the protos, to be changed."""
    return Path(shutil.copytree(PROTOS, tmp_path / "protos"))


def breaking(protos: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("buf")), "breaking", "--against", "baseline.binpb"]
    return subprocess.run(command, cwd=protos, capture_output=True, text=True, check=False, timeout=60)


def change(protos: Path, old: str, new: str) -> None:
    path = protos / TIERING
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


@pytest.mark.system
@pytest.mark.parametrize(
    "new",
    ["  int64 rows = 1;", "  int64 rows = 1;\n  int64 more = 90;", '  reserved 1;\n  reserved "rows";'],
    ids=["as it is", "a new field", "a field whose number and name are reserved"],
)
def test_what_breaks_no_client_passes(protos: Path, new: str) -> None:
    change(protos, "  int64 rows = 1;", new)
    done = breaking(protos)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.system
@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("  int64 rows = 1;", "  int64 rows = 90;", 'field "1" with name "rows"'),
        ("  int64 rows = 1;", "  string rows = 1;", 'changed type from "int64" to "string"'),
        ("  int64 rows = 1;", "  int64 row_count = 1;", 'changed name from "rows" to "row_count"'),
        ("  int64 rows = 1;", "", 'field "1" with name "rows"'),
        (
            CANCEL,
            "",
            'RPC "CancelTiering" on service "LakeTiering" was deleted',
        ),
    ],
    ids=["a field with another number", "with another type", "with another name", "a removed field", "a removed call"],
)
def test_a_change_that_breaks_clients_fails(protos: Path, old: str, new: str, told: str) -> None:
    change(protos, old, new)
    done = breaking(protos)
    assert done.returncode == 100, done.stdout + done.stderr
    assert told in done.stdout
