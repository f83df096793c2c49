"""Programs of public registries, which are installed at their first use."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from examples.ports import free_ports
from fetch_test_servers import SERVERS
from java_servers import RunningProgram

MOTO: Final = "5.2.5"
_UV: Final = str(Path(sys.executable).with_name("uv"))


def python_with(requirement: str) -> Path:
    """Return the Python of an environment with a package, which is made at its first use."""
    folder = SERVERS / requirement.replace("[", "-").replace("]", "").replace(",", "-").replace("==", "-")
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([_UV, "venv", "--quiet", "--python", sys.executable, str(folder)], check=True)
    subprocess.run([_UV, "pip", "install", "--quiet", "--python", str(python), requirement], check=True)
    return python


def npm_programs(package: str) -> Path:
    """Return the folder of the programs of a package of npm, which is installed at its first use."""
    folder = SERVERS / package.replace("@", "-")
    if not (folder / "node_modules").exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["npm", "install", "--silent", "--no-audit", "--prefix", str(folder), package], check=True)
    return folder / "node_modules" / ".bin"


def go_program(package: str) -> Path:
    """Return a program that Go builds at its first use, which takes some minutes."""
    program = SERVERS / "go" / package.rpartition("/")[2].partition("@")[0]
    if not program.exists():
        subprocess.run(["go", "install", package], check=True, env={**os.environ, "GOBIN": str(program.parent)})
    return program


def new_java() -> str:
    """Return a Java of version 21 or later."""
    for home in sorted(Path("/usr/lib/jvm").glob("*"), reverse=True):
        java = home / "bin" / "java"
        if java.exists() and not any(each in home.name for each in ("-8-", "-11-", "-17-", "1.17", "17")):
            return str(java)
    return shutil.which("java") or "java"


@contextmanager
def moto(folder: Path) -> Iterator[str]:
    """Start the emulator of AWS with a bucket `lake`, and yield its address."""
    (port,) = free_ports(1)
    python = python_with(f"moto[server,s3,glue]=={MOTO}")
    with RunningProgram("moto", folder, port, [str(python.with_name("moto_server")), "-p", str(port)]):
        endpoint = f"http://127.0.0.1:{port}"
        # The emulator takes a bucket by a request that nobody has signed.
        urllib.request.urlopen(urllib.request.Request(f"{endpoint}/lake", method="PUT")).close()
        yield endpoint
