"""docs/how-to/certificates.md: its commands make certificates that a server and its clients take."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from code_blocks import ROOT, code_blocks

from engine_support import ServerThread
from needs import needs

PAGE = ROOT / "docs" / "how-to" / "certificates.md"
BLOCKS = [block.code for block in code_blocks(PAGE, "bash")]
MAKING = [code for code in BLOCKS if "fluss-tiering serve" not in code and not code.startswith("fluss-tiering")]
CALLS = [code for code in BLOCKS if code.startswith("fluss-tiering status --")]
SERVES = [code for code in BLOCKS if "fluss-tiering serve" in code]


@pytest.fixture
@needs("system")
def folder(tmp_path: Path) -> Path:
    """A folder in which the commands of the page have run."""
    if shutil.which("openssl") is None:
        pytest.skip("this machine has no openssl")
    # The access file is made in the block that starts the server.
    writing = [line for code in SERVES for line in code.splitlines() if line.startswith("printf")]
    script = "\n".join([*MAKING, *writing])
    subprocess.run(["bash", "-euc", script], cwd=tmp_path, check=True, capture_output=True, text=True)
    return tmp_path


def settings_of(code: str, folder: Path) -> dict[str, object]:
    words = [word for word in code.split() if "=" in word and word.endswith((".pem", ".key", ".toml"))]
    pairs = [word.partition("=") for word in words]
    return {name.replace("-", "_"): folder / file for name, _, file in pairs}


def test_every_block_is_tried() -> None:
    assert (len(MAKING), len(SERVES), len(CALLS)) == (5, 2, 2)


@pytest.mark.parametrize("number", [0, 1], ids=["a server", "a server that asks for certificates"])
def test_a_server_and_its_client_take_the_certificates(folder: Path, number: int) -> None:
    settings = settings_of(SERVES[number], folder)
    assert len(settings) == (2, 4)[number]
    with ServerThread(folder / "data", **settings) as server:
        # The name is checked, too: `localhost` is one of those in the certificate.
        environment = {
            **os.environ,
            "FLUSS_TIERING_SERVER": f"localhost:{server.server.port}",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }

        def run(code: str) -> subprocess.CompletedProcess[str]:
            command = ["bash", "-euc", code]
            return subprocess.run(command, cwd=folder, env=environment, check=False, capture_output=True, text=True)

        answer = run(CALLS[number])
        assert (answer.returncode, answer.stderr) == (0, "")
        if number == 1:
            assert run(CALLS[0]).returncode == 2, "without a certificate"


def test_the_keys_are_private(folder: Path) -> None:
    keys = list(folder.glob("*.key"))
    assert len(keys) == 3
    assert {oct(key.stat().st_mode & 0o777) for key in keys} == {"0o600"}
