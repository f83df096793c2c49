"""The packages, built as a new user builds them: in a folder that holds the checkout's files and nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from engine_fixtures import postgres, postgres_url, server
from needs import needs

__all__ = ["postgres", "postgres_url", "server"]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
@needs("system")
def checkout(tmp_path_factory) -> Path:
    """A copy of the files that git knows, or would take up: without git, and without what was built in the original."""
    copy = tmp_path_factory.mktemp("checkout")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).exists():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    return copy


@pytest.fixture(scope="session")
def make_dist() -> str:
    """`make dist` with the uv of this environment, so that none is installed for it."""
    return f"make dist VENV={sys.prefix}"


@pytest.fixture(scope="session")
@needs("system")
def dist(checkout, make_dist) -> Path:
    """The wheels and the source archives of both packages, compiled against the jars that are installed here."""
    jars = Path(str(find_spec("pyspark").origin)).parent / "jars"
    environment = {**os.environ, "FLUSS_TIERING_BUILD_SPARK_JARS": f"{jars}{os.pathsep}{ROOT / '.cache' / 'jars'}"}
    subprocess.run(make_dist.split(), cwd=checkout, env=environment, check=True, timeout=280)
    return checkout / "dist"
